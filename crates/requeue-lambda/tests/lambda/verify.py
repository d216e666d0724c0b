#!/usr/bin/env python3
"""Judges signed requests with the library of the Standard Webhooks project, which knows nothing of us.

Reads a JSON list of {"secret", "headers", "body"} from the standard input, and prints whether each is accepted.
"""

import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def accepted(request):
    try:
        Webhook(request["secret"]).verify(request["body"], request["headers"], json_parse=False)
    except WebhookVerificationError:
        return False
    return True


print(json.dumps([accepted(request) for request in json.load(sys.stdin)]))
