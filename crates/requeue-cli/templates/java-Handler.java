package orders;

import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.RequestHandler;
import com.amazonaws.services.lambda.runtime.events.SQSEvent;
import com.amazonaws.services.lambda.runtime.events.SQSEvent.SQSMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Charges orders. Requeue invokes it with the SQS event, and retries each failed record by its class.
 *
 * <p>It returns a map: the class SQSBatchResponse, which Powertools returns too, has no fields beside
 * the identifier. Without them, Requeue retries every failed record as temporary.
 */
public final class Handler implements RequestHandler<SQSEvent, Map<String, List<Map<String, Object>>>> {
    @Override
    public Map<String, List<Map<String, Object>>> handleRequest(SQSEvent event, Context context) {
        List<Map<String, Object>> failures = new ArrayList<>();
        for (SQSMessage message : event.getRecords()) {
            try {
                charge(message.getBody());
            } catch (Exception error) {
                failures.add(item(message.getMessageId(), error));
            }
        }
        return Map.of("batchItemFailures", failures);
    }

    /** A body is an amount in cents. */
    static void charge(String body) {
        if (!body.matches("[1-9]\\d{0,8}")) {
            throw new InvalidOrder();
        }
        int cents = Integer.parseInt(body);
        if (cents > 1_000_000) {
            throw new BankBusy(60);
        }
    }

    static final class InvalidOrder extends RuntimeException {}

    /** The bank asks to wait. */
    static final class BankBusy extends RuntimeException {
        final int seconds;

        BankBusy(int seconds) {
            this.seconds = seconds;
        }
    }

    private static Map<String, Object> item(String id, Throwable error) {
        if (error instanceof BankBusy busy) {
            return Map.of("itemIdentifier", id, "class", "rate-limit", "delaySeconds", busy.seconds, "reason", "bank-busy");
        }
        if (error instanceof InvalidOrder) {
            return Map.of("itemIdentifier", id, "class", "non-retryable", "reason", "invalid-order");
        }
        // Requeue finds the class by the type.
        return Map.of("itemIdentifier", id, "errorType", error.getClass().getName(), "errorMessage", String.valueOf(error.getMessage()));
    }
}
