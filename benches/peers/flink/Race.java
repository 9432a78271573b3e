import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/**
 * usage: Race QUERY_FILE DATA_DIR RUNS. Runs a query over the recorded events in a mini-cluster of this process: once with its answer
 * summed up, which also warms the JVM, then so many times with its rows only counted; once, if that takes over a minute. Prints a line
 * of JSON for each.
 */
public class Race {
    static double processorSeconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    static long peakMb() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) return Long.parseLong(line.replaceAll("\\D", "")) / 1024;
        }
        return 0;
    }

    /** Processor seconds that the machine has spent on anything. */
    static double busySeconds() throws Exception {
        String[] fields = Files.readString(Path.of("/proc/stat")).split("\n")[0].trim().split("\\s+");
        return (Long.parseLong(fields[1]) + Long.parseLong(fields[2]) + Long.parseLong(fields[3]) + Long.parseLong(fields[6]) + Long.parseLong(fields[7])) / 100.0;
    }

    static TableEnvironment environment(String data) {
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", "2");
        settings.setString("taskmanager.numberOfTaskSlots", "2");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("table.local-time-zone", "UTC");
        settings.setString("table.exec.mini-batch.enabled", "true");
        settings.setString("table.exec.mini-batch.allow-latency", "2 s");
        settings.setString("table.exec.mini-batch.size", "50000");
        settings.setString("taskmanager.memory.network.min", "256mb");
        settings.setString("taskmanager.memory.network.max", "256mb");
        TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        tables.executeSql("CREATE TABLE ads (ad_id STRING, campaign_id STRING) WITH ('connector' = 'ads-lookup', 'path' = '" + data + "/ysb/ads.csv')");
        stream(tables, data, "ysb/events", "event_time", "user_id STRING, page_id STRING, ad_id STRING, ad_type STRING, event_type STRING, event_time BIGINT, ip_address STRING, proc AS PROCTIME()");
        stream(tables, data, "nexmark/person", "date_time", "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, date_time BIGINT, extra STRING");
        stream(tables, data, "nexmark/auction", "date_time", "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, date_time BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra STRING");
        stream(tables, data, "nexmark/bid", "date_time", "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING");
        return tables;
    }

    static void stream(TableEnvironment tables, String data, String folder, String time, String columns) {
        String name = folder.substring(folder.indexOf('/') + 1);
        tables.executeSql("CREATE TABLE " + name + " (" + columns + ", ts AS TO_TIMESTAMP_LTZ(" + time + ", 3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND)"
            + " WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '" + data + "/" + folder + "/part')");
    }

    public static void main(String[] arguments) throws Exception {
        String sql = Files.readString(Path.of(arguments[0]));
        int runs = Integer.parseInt(arguments[2]);
        for (int run = 0; run <= runs; run++) {
            Check.reset();
            boolean checks = run == 0;
            TableEnvironment tables = environment(arguments[1]);
            double spent = processorSeconds(), busy = busySeconds();
            TableResult result = tables.sqlQuery(sql).insertInto(TableDescriptor.forConnector("check").option("mode", checks ? "md5" : "count").build()).execute();
            result.await();
            spent = processorSeconds() - spent;
            busy = busySeconds() - busy;
            // From running to finished: neither planning nor the start of the cluster.
            double seconds = result.getJobClient().get().getJobExecutionResult().get().getNetRuntime() / 1e3;
            System.out.printf("{\"seconds\": %.3f, \"processor seconds\": %.2f, \"seconds of others\": %.2f, \"peak MB\": %d, \"rows\": %d, \"md5sum15\": \"%s\"}%n",
                seconds, spent, Math.max(0, busy - spent), peakMb(), Check.ROWS.sum(), Check.sum());
            if (run > 0 && seconds > 60) break;
        }
        System.exit(0);
    }
}
