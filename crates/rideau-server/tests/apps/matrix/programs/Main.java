import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.concurrent.Executors;

public class Main {
    HEAD
    static final String VERSION = "@VERSION", MODE = "@MODE";
    static final byte[] PIECE = new byte[65536];

    static void answer(HttpExchange exchange, int status, String text) throws IOException {
        byte[] body = text.getBytes();
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    static void page(HttpExchange exchange) throws IOException {
        boolean fails = MODE.equals("fails") || (MODE.equals("half") && Math.random() < 0.5);
        answer(exchange, fails ? 500 : 200, fails ? "no" : VERSION);
    }

    static void work(HttpExchange exchange) throws IOException {
        try {
            Thread.sleep(MODE.equals("slow") ? 600 : 100);
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        }
        answer(exchange, 200, VERSION);
    }

    static void up(HttpExchange exchange) throws IOException {
        byte[] piece = new byte[65536];
        long total = 0;
        for (int length; (length = exchange.getRequestBody().read(piece)) >= 0; ) {
            total += length;
        }
        answer(exchange, 200, Long.toString(total));
    }

    static void down(HttpExchange exchange) throws IOException {
        String[] words = exchange.getRequestURI().getPath().split("/");
        exchange.sendResponseHeaders(200, 0);
        for (int n = 0; n < Integer.parseInt(words[2]) * 16; n++) {
            exchange.getResponseBody().write(PIECE);
        }
        exchange.close();
    }

    static void events(HttpExchange exchange) throws IOException {
        exchange.getResponseHeaders().set("Content-Type", "text/event-stream");
        exchange.sendResponseHeaders(200, 0);
        while (true) {
            exchange.getResponseBody().write(("data: " + VERSION + "\n\n").getBytes());
            exchange.getResponseBody().flush();
            try {
                Thread.sleep(100);
            } catch (InterruptedException interrupted) {
                throw new IOException(interrupted);
            }
        }
    }

    public static void main(String[] words) throws IOException {
        if (MODE.equals("raises")) {
            throw new IllegalStateException("broken on purpose");
        }
        Arrays.fill(PIECE, (byte) 'x');
        int port = Integer.parseInt(System.getenv("PORT"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 256);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", Main::page);
        server.createContext("/work", Main::work);
        server.createContext("/up", Main::up);
        server.createContext("/down", Main::down);
        server.createContext("/events", Main::events);
        server.start();
    }
}
