import java.io.*;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.connector.sink2.*;
import org.apache.flink.configuration.*;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.*;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.*;
import org.apache.flink.table.types.logical.*;
import org.apache.flink.types.RowKind;

/** Sink 'check': mode count counts changes; mode md5 also sums the first 15 hex digits of the MD5 of each
 *  row's text (fields joined by '|', times as epoch ms), added for inserts and taken off for retractions,
 *  so the sum is that of the final result. */
public class Check implements DynamicTableSinkFactory {
    static final ConfigOption<String> MODE = ConfigOptions.key("mode").stringType().defaultValue("count");
    static final LongAdder CHANGES = new LongAdder(), ROWS = new LongAdder(), SUM = new LongAdder();

    static void reset() { CHANGES.reset(); ROWS.reset(); SUM.reset(); }
    static String sum() { return Long.toUnsignedString(SUM.sum()); }

    public String factoryIdentifier() { return "check"; }
    public Set<ConfigOption<?>> requiredOptions() { return Set.of(); }
    public Set<ConfigOption<?>> optionalOptions() { return Set.of(MODE); }
    public DynamicTableSink createDynamicTableSink(Context c) {
        FactoryUtil.TableFactoryHelper h = FactoryUtil.createTableFactoryHelper(this, c);
        return new TableSink(h.getOptions().get(MODE), (RowType) c.getPhysicalRowDataType().getLogicalType());
    }

    static final class TableSink implements DynamicTableSink {
        final String mode; final RowType type;
        TableSink(String mode, RowType type) { this.mode = mode; this.type = type; }
        public ChangelogMode getChangelogMode(ChangelogMode asked) { return ChangelogMode.all(); }
        public SinkRuntimeProvider getSinkRuntimeProvider(Context c) { return SinkV2Provider.of(new S(mode, type)); }
        public DynamicTableSink copy() { return new TableSink(mode, type); }
        public String asSummaryString() { return "check"; }
    }

    static final class S implements Sink<RowData> {
        final String mode; final RowType type;
        S(String mode, RowType type) { this.mode = mode; this.type = type; }
        public SinkWriter<RowData> createWriter(WriterInitContext c) {
            return mode.equals("count") ? new Count() : new Hash(type);
        }
    }

    static final class Count implements SinkWriter<RowData> {
        long n = 0;
        public void write(RowData r, Context c) { n++; }
        public void flush(boolean end) { CHANGES.add(n); n = 0; }
        public void close() { flush(true); }
    }

    static final class Hash implements SinkWriter<RowData> {
        final RowType type; final RowData.FieldGetter[] get; final MessageDigest md;
        Hash(RowType type) {
            this.type = type;
            get = new RowData.FieldGetter[type.getFieldCount()];
            for (int i = 0; i < get.length; i++) get[i] = RowData.createFieldGetter(type.getTypeAt(i), i);
            try { md = MessageDigest.getInstance("MD5"); } catch (Exception e) { throw new RuntimeException(e); }
        }
        public void write(RowData r, Context c) {
            StringBuilder b = new StringBuilder();
            for (int i = 0; i < get.length; i++) {
                if (i > 0) b.append('|');
                Object v = get[i].getFieldOrNull(r);
                if (v instanceof org.apache.flink.table.data.TimestampData) b.append(((org.apache.flink.table.data.TimestampData) v).getMillisecond());
                else b.append(v);
            }
            String text = b.toString();
            byte[] d = md.digest(text.getBytes(StandardCharsets.UTF_8));
            long h = 0;
            for (int i = 0; i < 8; i++) h = h << 8 | (d[i] & 0xff);
            h >>>= 4;
            boolean add = r.getRowKind() == RowKind.INSERT || r.getRowKind() == RowKind.UPDATE_AFTER;
            CHANGES.increment(); ROWS.add(add ? 1 : -1); SUM.add(add ? h : -h);
        }
        public void flush(boolean end) { }
        public void close() { }
    }
}
