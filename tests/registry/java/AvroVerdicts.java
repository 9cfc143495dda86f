import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaCompatibility.Incompatibility;
import org.apache.avro.SchemaCompatibility.SchemaCompatibilityType;
import org.apache.avro.SchemaCompatibility.SchemaPairCompatibility;

/**
 * Prints the verdicts of Java's Avro library on pairs of schemas.
 *
 * <p>Each line of the input is an object with the texts "reader" and "writer". Each line of the
 * output is an object. It has the text of each valid schema, and "readerError" or "writerError" for
 * an invalid one. For two valid schemas it has "compatible" with "reasons", or "error".
 */
public class AvroVerdicts {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  public static void main(String[] arguments) throws IOException {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(MAPPER.writeValueAsString(verdict(MAPPER.readTree(line))));
    }
    out.flush();
  }

  private static ObjectNode verdict(JsonNode pair) {
    ObjectNode result = MAPPER.createObjectNode();
    Schema reader = parse(pair, "reader", result);
    Schema writer = parse(pair, "writer", result);
    if (reader == null || writer == null) {
      return result;
    }
    try {
      compare(reader, writer, result);
    } catch (AvroRuntimeException failure) {
      result.put("error", failure.getMessage());
    }
    return result;
  }

  private static Schema parse(JsonNode pair, String side, ObjectNode result) {
    try {
      Schema.Parser parser = new Schema.Parser(NameValidator.STRICT_VALIDATOR);
      Schema schema = parser.parse(pair.get(side).textValue());
      result.put(side, schema.toString());
      return schema;
    } catch (RuntimeException failure) {
      result.put(side + "Error", String.valueOf(failure.getMessage()));
      return null;
    }
  }

  private static void compare(Schema reader, Schema writer, ObjectNode result) {
    SchemaPairCompatibility found =
        SchemaCompatibility.checkReaderWriterCompatibility(reader, writer);
    result.put("compatible", found.getType() == SchemaCompatibilityType.COMPATIBLE);
    ArrayNode reasons = result.putArray("reasons");
    for (Incompatibility each : found.getResult().getIncompatibilities()) {
      ArrayNode reason = reasons.addArray();
      reason.add(each.getType().name()).add(each.getLocation()).add(each.getMessage());
    }
  }
}
