import java.io.File;
import java.util.Arrays;
import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/**
 * ActiveMQ as the benchmark runs it, and its clients over OpenWire.
 *
 * <p>broker URL DIRECTORY runs a broker until the process is ended.
 *
 * <p>produce URL QUEUE COUNT SIZE BATCH sends persistent messages without waiting for a response.
 * Each batch of more than one message is a transaction.
 *
 * <p>consume URL QUEUE COUNT acknowledges messages in groups. The clients print {"seconds": ...}.
 */
public class ActiveMq {
  public static void main(String[] words) {
    try {
      run(words);
      System.exit(0);
    } catch (Throwable error) {
      // A connection's threads would keep the process alive.
      error.printStackTrace();
      System.exit(1);
    }
  }

  private static void run(String[] words) throws Exception {
    switch (words[0]) {
      case "broker" -> broker(words[1], words[2]);
      case "produce" ->
          produce(words[1], words[2], number(words[3]), number(words[4]), number(words[5]));
      case "consume" -> consume(words[1], words[2], number(words[3]));
      default -> throw new IllegalArgumentException(String.join(" ", Arrays.asList(words)));
    }
  }

  private static int number(String word) {
    return Integer.parseInt(word);
  }

  private static void broker(String url, String directory) throws Exception {
    KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
    store.setDirectory(new File(directory));
    // The system writes the page cache, as with the other brokers.
    store.setJournalDiskSyncStrategy("never");
    BrokerService broker = new BrokerService();
    broker.setUseJmx(false);
    broker.setDataDirectory(directory);
    broker.setTmpDataDirectory(new File(directory, "tmp"));
    broker.setPersistenceAdapter(store);
    broker.getSystemUsage().getStoreUsage().setLimit(20L << 30);
    broker.getSystemUsage().getTempUsage().setLimit(1L << 30);
    broker.getSystemUsage().getMemoryUsage().setLimit(512L << 20);
    broker.addConnector(url);
    broker.start();
    broker.waitUntilStopped();
  }

  private static ActiveMQConnection connection(String url) throws Exception {
    ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
    factory.setUseAsyncSend(true);
    factory.setProducerWindowSize(1 << 20);
    factory.setWatchTopicAdvisories(false);
    ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
    connection.start();
    return connection;
  }

  private static void produce(String url, String name, int count, int size, int batch)
      throws Exception {
    ActiveMQConnection connection = connection(url);
    boolean transacted = batch > 1;
    Session session = connection.createSession(transacted, Session.AUTO_ACKNOWLEDGE);
    Queue queue = session.createQueue(name);
    MessageProducer producer = session.createProducer(queue);
    producer.setDeliveryMode(DeliveryMode.PERSISTENT);
    byte[] payload = new byte[size];
    long began = System.nanoTime();
    for (int at = 1; at <= count; at++) {
      BytesMessage message = session.createBytesMessage();
      message.writeBytes(payload);
      if (at == count) {
        // The last message waits for its response, so that all messages have arrived.
        connection.setUseAsyncSend(false);
      }
      producer.send(message);
      if (transacted && (at % batch == 0 || at == count)) {
        session.commit();
      }
    }
    report(began);
    connection.close();
  }

  private static void consume(String url, String name, int count) throws Exception {
    ActiveMQConnection connection = connection(url);
    Session session = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
    long began = System.nanoTime();
    MessageConsumer consumer = session.createConsumer(session.createQueue(name));
    for (int at = 0; at < count; at++) {
      if (consumer.receive(60_000) == null) {
        throw new IllegalStateException("no more after " + at + " messages");
      }
    }
    report(began);
    consumer.close();
    connection.close();
  }

  private static void report(long began) {
    System.out.println("{\"seconds\": " + (System.nanoTime() - began) / 1e9 + "}");
  }
}
