import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.RestService;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Config;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Metadata;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Rule;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.RuleKind;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.RuleMode;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.RuleSet;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SubjectVersion;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The scenarios on Confluent's Java client, as shaded into flink-sql-avro-confluent-registry, and on
 * Flink's Avro schemas, which use that client. `conformance/schema_registry/programs.py` describes
 * the command line. The shaded client parses Avro only. JSON Schema and Protobuf are registered by
 * its RestService.
 */
public final class RegistryScenarios {
    private static final List<String> ENDINGS = List.of("avsc", "json", "proto");
    private static final Map<String, String> KINDS =
            Map.of("avsc", "AVRO", "json", "JSON", "proto", "PROTOBUF");
    private static final Map<String, String> REFERENCES =
            Map.of(
                    "avsc", "shop.Order",
                    "json", "http://shop.example/order.json",
                    "proto", "order.proto");

    private final String url;
    private final Path directory;
    private final RestService rest;
    private final CachedSchemaRegistryClient client;

    private RegistryScenarios(String url, String directory) {
        this.url = url;
        this.directory = Path.of(directory);
        rest = new RestService(url);
        client = fresh("");
    }

    private CachedSchemaRegistryClient fresh(String path) {
        return new CachedSchemaRegistryClient(url + path, 100);
    }

    private String text(String name) throws Exception {
        return Files.readString(directory.resolve(name));
    }

    private AvroSchema avro(String name) throws Exception {
        return new AvroSchema(text(name + ".avsc"));
    }

    private int register(String subject, String name, String ending, SchemaReference... references)
            throws Exception {
        String schema = text(name + "." + ending);
        return rest.registerSchema(schema, KINDS.get(ending), List.of(references), subject).getId();
    }

    private static void same(String what, Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(what + ": " + found + " instead of " + expected);
        }
    }

    private static List<String> sorted(Collection<String> words) {
        return new ArrayList<>(new TreeSet<>(words));
    }

    private static void fails(int code, Callable<?> call) throws Exception {
        Object found;
        try {
            found = call.call();
        } catch (RestClientException error) {
            same("code of " + error.getMessage(), error.getErrorCode(), code);
            return;
        }
        throw new AssertionError(found + " instead of error " + code);
    }

    private void lookups() throws Exception {
        AvroSchema first = avro("order_1");
        AvroSchema second = avro("order_2");
        same("id", client.register("orders", first), 1);
        same("id", client.registerWithResponse("orders", second, true).getId(), 2);
        same("the same schema", client.register("others", first), 1);
        CachedSchemaRegistryClient fresh = fresh("");
        same("by id", fresh.getSchemaById(1).canonicalString(), first.canonicalString());
        String found = fresh.getSchemaBySubjectAndId("orders", 2).canonicalString();
        same("by subject and id", found, second.canonicalString());
        same("text", new AvroSchema(rest.getOnlySchemaById(1)), first);
        same("id", fresh.getId("orders", first), 1);
        same("version", fresh.getVersion("orders", second), 2);
        same("latest", fresh.getLatestSchemaMetadata("orders").getVersion(), 2);
        same("version 1", fresh.getSchemaMetadata("orders", 1).getId(), 1);
        same("text", new AvroSchema(rest.getVersionSchemaOnly("orders", 1)), first);
        same("text", new AvroSchema(rest.getLatestVersionSchemaOnly("orders")), second);
        same("versions", fresh.getAllVersions("orders"), List.of(1, 2));
        same("schemas", fresh.getSchemas("or", false, false).size(), 2);
        same("latest schemas", fresh.getSchemas("or", false, true).size(), 1);
        List<String> subjects = List.of("orders", "others");
        same("subjects", sorted(fresh.getAllSubjects()), subjects);
        same("with a prefix", sorted(fresh.getAllSubjectsByPrefix("or")), List.of("orders"));
        same("subjects by id", sorted(fresh.getAllSubjectsById(1)), subjects);
        List<SubjectVersion> uses = new ArrayList<>(fresh.getAllVersionsById(1));
        same("uses", uses.size(), 2);
        same("types", sorted(rest.getSchemaTypes()), List.of("AVRO", "JSON", "PROTOBUF"));
        same("has a cluster", rest.getClusterId().getScope().isEmpty(), false);
        same("has a version", rest.getSchemaRegistryServerVersion().getVersion().isEmpty(), false);
        for (String ending : List.of("json", "proto")) {
            register(ending, "order_1", ending);
            same("type", rest.getLatestVersion(ending).getSchemaType(), KINDS.get(ending));
        }
    }

    private void compatibility() throws Exception {
        same("default", client.getCompatibility(null), "BACKWARD");
        AvroSchema wrong = avro("incompatible");
        client.register("avsc", avro("order_1"));
        same("second", client.testCompatibility("avsc", avro("order_2")), true);
        same("wrong", client.testCompatibility("avsc", wrong), false);
        same("reasons", client.testCompatibilityVerbose("avsc", wrong).isEmpty(), false);
        fails(409, () -> client.register("avsc", wrong));
        same("new level", client.updateCompatibility("avsc", "NONE"), "NONE");
        same("level", client.getCompatibility("avsc"), "NONE");
        client.register("avsc", wrong);
        for (String ending : List.of("json", "proto")) {
            register(ending, "order_1", ending);
            String second = text("order_2." + ending);
            String other = text("incompatible." + ending);
            String kind = KINDS.get(ending);
            List<SchemaReference> none = List.of();
            same("second", rest.testCompatibility(second, kind, none, ending, "1", true), none);
            List<String> reasons = rest.testCompatibility(other, kind, none, ending, "latest", true);
            same("reasons", reasons.isEmpty(), false);
            fails(409, () -> register(ending, "incompatible", ending));
        }
        for (String level : List.of("NONE", "FORWARD", "FULL_TRANSITIVE")) {
            client.updateCompatibility(null, level);
            same("default", client.getCompatibility(null), level);
        }
    }

    private void references() throws Exception {
        for (String ending : ENDINGS) {
            SchemaReference one = new SchemaReference(REFERENCES.get(ending), ending, 1);
            fails(42201, () -> register("lines-" + ending, "line", ending, one));
            register(ending, "order_1", ending);
            int id = register("lines-" + ending, "line", ending, one);
            same("references", rest.getId(id).getReferences(), List.of(one));
            same("users", rest.getReferencedBy(ending, 1), List.of(id));
            fails(42206, () -> client.deleteSchemaVersion(ending, "1"));
            if (ending.equals("avsc")) {
                Schema line = (Schema) fresh("").getSchemaById(id).rawSchema();
                same("resolved", line.getField("order").schema().getFullName(), "shop.Order");
            }
        }
    }

    private void errors() throws Exception {
        AvroSchema first = avro("order_1");
        fails(40401, () -> client.getAllVersions("unknown"));
        fails(40401, () -> client.getLatestSchemaMetadata("unknown"));
        fails(40401, () -> client.getVersion("unknown", first));
        fails(40401, () -> client.deleteSubject("unknown"));
        fails(40403, () -> client.getSchemaById(99));
        client.register("orders", first);
        fails(40402, () -> client.getSchemaMetadata("orders", 9));
        fails(42202, () -> client.getSchemaMetadata("orders", 0));
        fails(40403, () -> client.getId("orders", avro("order_2")));
        fails(40408, () -> rest.getConfig(Map.of(), "orders", false));
        fails(40409, () -> rest.getMode("orders", false));
        fails(42203, () -> client.updateCompatibility("orders", "SOME"));
        fails(42204, () -> client.setMode("SOME", "orders"));
        for (String ending : ENDINGS) {
            fails(42201, () -> register("new", "invalid", ending));
        }
    }

    private void deletes() throws Exception {
        AvroSchema first = avro("order_1");
        client.register("orders", first);
        client.register("orders", avro("order_2"));
        fails(40407, () -> client.deleteSchemaVersion("orders", "1", true));
        same("deleted", client.deleteSchemaVersion("orders", "1"), 1);
        fails(40406, () -> client.deleteSchemaVersion("orders", "1"));
        same("versions", client.getAllVersions("orders"), List.of(2));
        same("all versions", client.getAllVersions("orders", true), List.of(1, 2));
        same("deleted versions", rest.getDeletedOnlyVersions("orders"), List.of(1));
        same("deleted", client.getSchemaMetadata("orders", 1, true).getId(), 1);
        same("deleted", client.deleteSchemaVersion("orders", "1", true), 1);
        fails(40402, () -> client.getSchemaMetadata("orders", 1, true));
        fails(40405, () -> client.deleteSubject("orders", true));
        same("deleted", client.deleteSubject("orders"), List.of(2));
        fails(40404, () -> client.deleteSubject("orders"));
        same("subjects", sorted(client.getAllSubjects()), List.of());
        same("all subjects", sorted(client.getAllSubjects(true)), List.of("orders"));
        same("deleted subjects", rest.getDeletedOnlySubjects(null), List.of("orders"));
        same("deleted", client.deleteSubject("orders", true), List.of(2));
        same("all subjects", sorted(client.getAllSubjects(true)), List.of());
    }

    private void contexts() throws Exception {
        String qualified = ":.sales:orders";
        same("id", client.register("orders", avro("order_1")), 1);
        same("id", client.register(qualified, avro("order_2")), 1);
        same("contexts", rest.getAllContexts(), List.of(".", ".sales"));
        CachedSchemaRegistryClient prefixed = fresh("/contexts/.sales");
        same("version", prefixed.getLatestSchemaMetadata("orders").getId(), 1);
        same("subjects", sorted(prefixed.getAllSubjects()), List.of(qualified));
        same("by id", prefixed.getSchemaById(1), avro("order_2"));
        same("by id", fresh("").getSchemaById(1), avro("order_1"));
        same("by id", fresh("").getSchemaBySubjectAndId(qualified, 1), avro("order_2"));
    }

    private void settings() throws Exception {
        Config config = new Config("FULL");
        config.setCompatibilityGroup("major");
        client.updateConfig("orders", config);
        same("group", client.getConfig("orders").getCompatibilityGroup(), "major");
        same("inherited", rest.getConfig(Map.of(), "others", true).getCompatibilityLevel(), "BACKWARD");
        client.deleteConfig("orders");
        fails(40408, () -> rest.getConfig(Map.of(), "orders", false));
        client.updateConfig(null, config);
        same("global", client.getConfig(null).getCompatibilityLevel(), "FULL");
        same("mode", client.getMode(), "READWRITE");
        same("new mode", client.setMode("READONLY", "orders"), "READONLY");
        same("mode", client.getMode("orders"), "READONLY");
        fails(42205, () -> client.register("orders", avro("order_1")));
        client.deleteMode("orders");
        client.register("orders", avro("order_1"));
        fails(42205, () -> client.setMode("IMPORT"));
        same("forced", client.setMode("IMPORT", null, true), "IMPORT");
        same("imported", client.register("imported", avro("order_2"), 7, 40), 40);
        same("mode", client.setMode("READWRITE"), "READWRITE");
    }

    private void contracts() throws Exception {
        Rule rule =
                new Rule(
                        "positive", null, RuleKind.CONDITION, RuleMode.WRITE, "CEL", null, null,
                        "message.amount > 0", null, null, false);
        Metadata owner = new Metadata(null, Map.of("owner", "team"), null);
        RuleSet rules = new RuleSet(null, List.of(rule));
        client.register("orders", avro("order_1").copy(owner, rules));
        same("metadata", client.getLatestSchemaMetadata("orders").getMetadata(), owner);
        List<Rule> kept = client.getLatestSchemaMetadata("orders").getRuleSet().getDomainRules();
        same("rule", kept.get(0).getExpr(), "message.amount > 0");
    }

    private void write(String bootstrap, String topic, String name) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (int position = 0; position < 3; position++) {
                Schema schema = avro("order_" + Math.min(position + 1, 2)).rawSchema();
                GenericRecord order = new GenericData.Record(schema);
                order.put("id", name + "-" + (position < 2 ? String.valueOf(position + 1) : "ä€"));
                order.put("amount", position < 2 ? position + 1 : Integer.MIN_VALUE);
                if (position > 0) {
                    order.put("note", "a note");
                }
                byte[] value =
                        ConfluentRegistryAvroSerializationSchema.forGeneric(
                                        topic + "-value", schema, url)
                                .serialize(order);
                producer.send(new ProducerRecord<>(topic, value)).get();
            }
        }
    }

    private void read(String bootstrap, int count, List<String> topics) throws Exception {
        Schema schema = avro("order_2").rawSchema();
        ConfluentRegistryAvroDeserializationSchema<GenericRecord> decoder =
                ConfluentRegistryAvroDeserializationSchema.forGeneric(schema, url);
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            for (String topic : topics) {
                TopicPartition partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                int found = 0;
                while (found < count) {
                    for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                        GenericRecord order = decoder.deserialize(each.value());
                        System.out.printf(
                                "{\"topic\":\"%s\",\"id\":\"%s\",\"amount\":%s,\"note\":\"%s\"}%n",
                                topic, order.get("id"), order.get("amount"), order.get("note"));
                        found++;
                    }
                }
            }
        }
    }

    public static void main(String[] words) throws Exception {
        RegistryScenarios scenarios = new RegistryScenarios(words[1], words[2]);
        switch (words[0]) {
            case "lookups" -> scenarios.lookups();
            case "compatibility" -> scenarios.compatibility();
            case "references" -> scenarios.references();
            case "errors" -> scenarios.errors();
            case "deletes" -> scenarios.deletes();
            case "contexts" -> scenarios.contexts();
            case "settings" -> scenarios.settings();
            case "contracts" -> scenarios.contracts();
            case "write" -> scenarios.write(words[3], words[5], words[6]);
            case "read" -> {
                List<String> topics = Arrays.asList(words).subList(6, words.length);
                scenarios.read(words[3], Integer.parseInt(words[5]), topics);
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        System.exit(0);
    }
}
