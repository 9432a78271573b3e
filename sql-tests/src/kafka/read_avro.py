# Prints what a topic holds, by Confluent's client and deserializer: of each committed record an object with the key and the value.
# Arguments: the broker, the registry, the topic. Says "skipped" where the client is not installed (pip install
# 'confluent-kafka[avro,schemaregistry]').
import json
import sys

try:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext
except ImportError as error:
    print("skipped", error)
    sys.exit()


def plain(value):
    """What JSON has no form of, as a text."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


broker, registry, topic = sys.argv[1:]
deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry}))
consumer = Consumer({"bootstrap.servers": broker, "group.id": "none", "isolation.level": "read_committed", "enable.partition.eof": True})
partitions = consumer.list_topics(topic).topics[topic].partitions
consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
left = set(partitions)
while left:
    record = consumer.poll(10)
    if record is None:
        sys.exit("nothing came within 10 seconds")
    if record.error():
        left.discard(record.partition())
        continue
    key = deserialize(record.key(), SerializationContext(topic, MessageField.KEY))
    value = deserialize(record.value(), SerializationContext(topic, MessageField.VALUE))
    print(json.dumps(plain({"key": key, "value": value}), sort_keys=True))
consumer.close()
