import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.jar.JarFile;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageSizeAccumulator;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.BaseRecords;
import org.apache.kafka.common.record.MemoryRecords;

/**
 * Writes one line for each message and version in the jars of the arguments: class, version, kind of
 * instance, and the bytes that Kafka's own class writes, in base64.
 *
 * Instance "full" has all fields set, and arrays have two elements. Instance "bare" has null in each field
 * that can be null, and empty arrays. Its other fields are set. Fields are set in the order of Kafka's
 * schema, tagged fields last, from a number n that starts at 1 and increases. tests/protocol/golden.py
 * follows the same rule.
 */
public final class GoldenMessages {
    private final short version;
    private final boolean full;
    private int number = 0;

    private GoldenMessages(short version, boolean full) {
        this.version = version;
        this.full = full;
    }

    public static void main(String[] jars) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        List<String> names = new ArrayList<>();
        for (String jar : jars) {
            try (JarFile file = new JarFile(jar)) {
                file.stream().map(entry -> entry.getName())
                    .filter(name -> name.matches(".*/(message|generated)/[A-Za-z]+\\.class"))
                    .forEach(name -> names.add(name.replace(".class", "").replace('/', '.')));
            }
        }
        Collections.sort(names);
        for (String name : names) {
            Class<?> type = Class.forName(name);
            if (Message.class.isAssignableFrom(type) && !Modifier.isAbstract(type.getModifiers())) {
                writeVersions(out, type);
            }
        }
        out.flush();
    }

    private static void writeVersions(PrintStream out, Class<?> type) throws Exception {
        Message sample = (Message) type.getConstructor().newInstance();
        for (short v = sample.lowestSupportedVersion(); v <= sample.highestSupportedVersion(); v++) {
            Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[v];
            for (boolean full : new boolean[] {true, false}) {
                Message message = (Message) new GoldenMessages(v, full).build(type, schema);
                out.printf("%s %d %s %s%n", type.getSimpleName(), v, full ? "full" : "bare", bytes(message, v));
            }
        }
    }

    private static String bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return Base64.getEncoder().encodeToString(buffer.array());
    }

    private Object build(Class<?> type, Schema schema) throws Exception {
        Object object = type.getConstructor().newInstance();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields) {
                for (org.apache.kafka.common.protocol.types.Field tagged
                        : ((TaggedFields) field.def.type).fields().values()) {
                    set(object, tagged.name, tagged.type);
                }
            } else {
                set(object, field.def.name, field.def.type);
            }
        }
        return object;
    }

    private void set(Object object, String name, Type type) throws Exception {
        Field field = find(object.getClass(), name);
        Method setter = null;
        for (Method method : object.getClass().getMethods()) {
            if (method.getName().equalsIgnoreCase("set" + field.getName())) {
                setter = method;
            }
        }
        if (!full && type instanceof Schema && takesNull((Message) object, setter)) {
            return;
        }
        setter.invoke(object, !full && type.isNullable() ? null : value(field, type));
    }

    /** Set a struct to null and return whether the object can be written. The schema does not say it. */
    private boolean takesNull(Message object, Method setter) throws Exception {
        setter.invoke(object, (Object) null);
        try {
            object.addSize(new MessageSizeAccumulator(), new ObjectSerializationCache(), version);
            return true;
        } catch (NullPointerException e) {
            return false;
        }
    }

    private static Field find(Class<?> type, String name) {
        String wanted = name.replace("_", "").toLowerCase(Locale.ROOT);
        for (Field field : type.getDeclaredFields()) {
            if (field.getName().toLowerCase(Locale.ROOT).equals(wanted)) {
                return field;
            }
        }
        throw new IllegalStateException(type + " has no field " + name);
    }

    @SuppressWarnings("unchecked")
    private Object value(Field field, Type type) throws Exception {
        if (!type.isArray()) {
            return type instanceof Schema schema ? build(field.getType(), schema) : scalar(field.getType(), type);
        }
        Class<?> holder = field.getType();
        Class<?> element = (Class<?>) ((ParameterizedType) (holder == List.class
            ? field.getGenericType() : holder.getGenericSuperclass())).getActualTypeArguments()[0];
        Collection<Object> values = holder == List.class
            ? new ArrayList<>() : (Collection<Object>) holder.getConstructor().newInstance();
        Type inner = type.arrayElementType().get();
        for (int i = 0; full && i < 2; i++) {
            values.add(inner instanceof Schema schema ? build(element, schema) : scalar(element, inner));
        }
        return values;
    }

    private Object scalar(Class<?> type, Type schema) {
        int n = ++number;
        int sign = n % 2 == 0 ? 1 : -1;
        if (type == boolean.class) return full;
        if (type == byte.class || type == Byte.class) return (byte) (sign * (40 + n % 80));
        if (type == short.class || type == Short.class) return (short) (sign * (1000 + n));
        if (schema == Type.UINT16) return 40000 + n;
        if (type == int.class || type == Integer.class) return sign * (70000 + n);
        if (schema == Type.UNSIGNED_INT32) return 3000000000L + n;
        if (type == long.class || type == Long.class) return sign * ((1L << 40) + n);
        if (type == double.class) return n + 0.5;
        if (type == String.class) return "s" + n + "-\u00e9";
        if (type == Uuid.class) return new Uuid(n, 7L * n);
        byte[] data = ("b" + n).getBytes(StandardCharsets.UTF_8);
        if (type == byte[].class) return data;
        if (type == ByteBuffer.class) return ByteBuffer.wrap(data);
        if (BaseRecords.class.isAssignableFrom(type)) return MemoryRecords.readableRecords(ByteBuffer.wrap(data));
        throw new IllegalStateException("no rule for " + type);
    }
}
