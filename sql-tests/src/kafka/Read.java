// Prints what topics hold, by Kafka's own client: topic, partition, offset, key and value of each committed record, parted by tabs.
// A key or value that is not there is \N.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Read {
    static String text(byte[] bytes) {
        return bytes == null ? "\\N" : new String(bytes, StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        StringBuilder out = new StringBuilder();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            List<TopicPartition> partitions = Arrays.stream(arguments).skip(1)
                .flatMap(topic -> consumer.partitionsFor(topic).stream())
                .map(partition -> new TopicPartition(partition.topic(), partition.partition()))
                .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (!partitions.stream().allMatch(at -> consumer.position(at) >= ends.get(at))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    out.append(record.topic()).append('\t').append(record.partition()).append('\t').append(record.offset()).append('\t')
                        .append(text(record.key())).append('\t').append(text(record.value())).append('\n');
                }
            }
        }
        System.out.print(out);
    }
}
