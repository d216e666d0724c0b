package orders;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.amazonaws.services.lambda.runtime.events.SQSEvent;
import com.amazonaws.services.lambda.runtime.events.SQSEvent.SQSMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class HandlerTest {
    /** The failed items of a batch with these bodies. */
    private static List<Map<String, Object>> items(String... bodies) {
        List<SQSMessage> records = new ArrayList<>();
        for (String body : bodies) {
            SQSMessage message = new SQSMessage();
            message.setMessageId("m-" + records.size());
            message.setBody(body);
            records.add(message);
        }
        SQSEvent event = new SQSEvent();
        event.setRecords(records);
        return new Handler().handleRequest(event, null).get("batchItemFailures");
    }

    @Test
    void chargedOrdersAreDone() {
        assertEquals(List.of(), items("500", "1"));
    }

    @Test
    void aBusyBankSaysHowLongToWait() {
        Map<String, Object> busy =
                Map.of("itemIdentifier", "m-1", "class", "rate-limit", "delaySeconds", 60, "reason", "bank-busy");
        assertEquals(List.of(busy), items("500", "1000001"));
    }

    @Test
    void anInvalidOrderIsNotTriedAgain() {
        for (Map<String, Object> item : items("0", "many")) {
            assertEquals("non-retryable", item.get("class"));
        }
    }
}
