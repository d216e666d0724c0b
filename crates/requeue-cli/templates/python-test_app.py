import json

from function.app import handler


def items(*orders):
    """The failed items of a batch with these orders."""
    records = [{"messageId": f"m-{place}", "body": json.dumps(order), "attributes": {}} for place, order in enumerate(orders)]
    return handler({"Records": records}, None)["batchItemFailures"]


def test_charged_orders_are_done():
    assert items({"cents": 500, "card": "ok"}, {"cents": 1, "card": "ok"}) == []


def test_a_busy_bank_says_how_long_to_wait():
    assert items({"cents": 500, "card": "ok"}, {"cents": 500, "card": "busy"}) == [
        {"itemIdentifier": "m-1", "class": "rate-limit", "delaySeconds": 60, "reason": "bank-busy"}
    ]


def test_an_invalid_order_is_not_tried_again():
    (item,) = items({"cents": 0})
    assert item["class"] == "non-retryable"


def test_each_failed_order_has_its_own_class():
    found = items({"cents": 0}, {"cents": 1, "card": "ok"}, {"cents": 1})
    assert [(item["itemIdentifier"], item.get("class"), item.get("errorType")) for item in found] == [
        ("m-0", "non-retryable", None),
        ("m-2", None, "ConnectionError"),
    ]
