import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Several of Kafka's producers at the same time in one process.
 *
 * <p>Arguments: ADDRESS TOPIC PRODUCERS RECORDS SIZE KEYS [PROPERTY=VALUE ...]. The producers send
 * RECORDS in all, with values of SIZE bytes. If KEYS is 0 the records have no key, otherwise each
 * has a random one of KEYS keys. Prints {"records": ..., "seconds": ...}, measured from the first
 * record to the last response.
 */
public class Producers {
  public static void main(String[] words) throws Exception {
    String topic = words[1];
    int count = Integer.parseInt(words[2]);
    int each = Integer.parseInt(words[3]) / count;
    int size = Integer.parseInt(words[4]);
    int keys = Integer.parseInt(words[5]);
    Properties properties = new Properties();
    properties.put("bootstrap.servers", words[0]);
    properties.put("key.serializer", ByteArraySerializer.class.getName());
    properties.put("value.serializer", ByteArraySerializer.class.getName());
    for (int at = 6; at < words.length; at++) {
      String[] pair = words[at].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    AtomicReference<Exception> failed = new AtomicReference<>();
    CyclicBarrier start = new CyclicBarrier(count + 1);
    List<Thread> threads = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
      producer.partitionsFor(topic);
      Random random = new Random(number);
      Thread thread =
          new Thread(
              () -> {
                try {
                  start.await();
                  send(producer, topic, each, size, keys, random, failed);
                } catch (Exception error) {
                  failed.compareAndSet(null, error);
                } finally {
                  producer.close();
                }
              });
      threads.add(thread);
      thread.start();
    }
    start.await();
    long began = System.nanoTime();
    for (Thread thread : threads) {
      thread.join();
    }
    double seconds = (System.nanoTime() - began) / 1e9;
    if (failed.get() != null) {
      failed.get().printStackTrace();
      System.exit(1);
    }
    System.out.printf("{\"records\": %d, \"seconds\": %.6f}%n", each * count, seconds);
  }

  private static void send(
      KafkaProducer<byte[], byte[]> producer,
      String topic,
      int records,
      int size,
      int keys,
      Random random,
      AtomicReference<Exception> failed) {
    byte[] value = new byte[size];
    random.nextBytes(value);
    byte[][] names = new byte[keys][];
    for (int key = 0; key < keys; key++) {
      names[key] = String.format("key-%08d", key).getBytes(StandardCharsets.US_ASCII);
    }
    for (int sent = 0; sent < records; sent++) {
      byte[] key = keys == 0 ? null : names[random.nextInt(keys)];
      producer.send(
          new ProducerRecord<>(topic, key, value),
          (metadata, error) -> {
            if (error != null) {
              failed.compareAndSet(null, error);
            }
          });
    }
    producer.flush();
  }
}
