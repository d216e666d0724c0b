// An HTTP service behind Requeue: java examples/http-service/Service.java

import static java.nio.charset.StandardCharsets.UTF_8;

import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

class Service {
    record Response(int status, Map<String, Object> headers) {
        Response(int status) {
            this(status, Map.of());
        }
    }

    static final String SECRET = System.getenv("SIGNING_SECRET"); // whsec_…; without it no signature is checked
    static final Set<String> CHARGED = new HashSet<>(); // in production: a table with the key as its primary key

    static Response respond(Headers headers, String body) throws GeneralSecurityException {
        if (SECRET != null && !isSigned(SECRET, headers, body.getBytes(UTF_8))) return new Response(401);
        String key = headers.getFirst("Idempotency-Key");
        if (CHARGED.contains(key)) return new Response(200);

        if (!body.startsWith("{")) return new Response(400);
        long notBefore = Long.parseLong(field(body, "notBefore", "0"));
        long wait = notBefore - Instant.now().getEpochSecond();
        if (wait > 0) return new Response(429, Map.of("Retry-After", wait, "Requeue-Scope", "message"));
        String card = field(body, "card", "ok");
        if (card.equals("declined")) return new Response(422);
        boolean isFirst = "0".equals(headers.getFirst("X-Requeue-Retry-Count"));
        if (card.equals("busy") && isFirst) return new Response(429, Map.of("Retry-After", 2));
        CHARGED.add(key);
        return new Response(200);
    }

    /** A field of flat JSON. In production, a library reads the body. */
    static String field(String body, String name, String absent) {
        Matcher found = Pattern.compile('"' + name + "\":\"?([^\",}]*)").matcher(body);
        return found.find() ? found.group(1) : absent;
    }

    // Standard Webhooks: the signed text is `webhook-id.webhook-timestamp.body`.
    static boolean isSigned(String secret, Headers headers, byte[] body) throws GeneralSecurityException {
        String id = headers.getFirst("webhook-id"), sent = headers.getFirst("webhook-timestamp");
        String signatures = headers.getFirst("webhook-signature");
        if (signatures == null || sent == null || !sent.matches("\\d{1,12}")) return false;
        if (Math.abs(Instant.now().getEpochSecond() - Long.parseLong(sent)) > 300) return false;
        byte[] key = Base64.getDecoder().decode(secret.substring("whsec_".length()));
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        mac.update((id + "." + sent + ".").getBytes(UTF_8));
        byte[] expected = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(UTF_8);
        return Stream.of(signatures.split(" ")).anyMatch(one -> MessageDigest.isEqual(one.getBytes(UTF_8), expected));
    }

    public static void main(String[] none) throws Exception {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "3000"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/", exchange -> {
            String body = new String(exchange.getRequestBody().readAllBytes(), UTF_8);
            Response response;
            try {
                response = respond(exchange.getRequestHeaders(), body);
            } catch (GeneralSecurityException | RuntimeException error) {
                response = new Response(500);
            }
            String retry = exchange.getRequestHeaders().getFirst("X-Requeue-Retry-Count");
            System.out.println(response.status() + "  retry " + retry + "  " + body);
            response.headers().forEach((name, value) -> exchange.getResponseHeaders().put(name, List.of(value.toString())));
            exchange.sendResponseHeaders(response.status(), -1);
            exchange.close();
        });
        server.start();
        System.out.println("listening on http://127.0.0.1:" + port + "/orders");
    }
}
