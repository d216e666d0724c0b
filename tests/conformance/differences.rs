//! Known differences between another implementation and AWS. `why` names AWS's document, or says
//! that the behaviour was seen on AWS. The embedded SQS follows AWS in each of them.
//!
//! "Reference" is the Amazon SQS API reference, "guide" the Amazon SQS developer guide. Versions:
//! moto 5.2.5, ministack 1.5.33.

/// A rule that somebody does not keep.
pub(crate) struct Difference {
    /// The check that shows it.
    pub(crate) check: &'static str,
    /// Who does what instead.
    pub(crate) instead: &'static [(&'static str, &'static str)],
    /// Why the embedded SQS is right.
    #[allow(dead_code, reason = "for the reader")]
    pub(crate) why: &'static str,
}

/// What `implementation` is known to do instead of what the check expects.
pub(crate) fn known(check: &str, implementation: &str) -> Option<&'static str> {
    let row = DIFFERENCES.iter().find(|row| row.check == check)?;
    let (_, does) = row.instead.iter().find(|(name, _)| *name == implementation)?;
    Some(does)
}

/// Checked one by one: a difference that is no longer there fails the test.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        check: "attributes out of bounds are refused",
        instead: &[(
            "moto",
            "43201: ok, 901: ok, 59: ok, 21: ok, 1048577: InvalidAttributeValue, text: no code",
        )],
        why: "Reference, CreateQueue: each attribute names its bounds.",
    },
    Difference {
        check: "an unknown attribute is refused",
        instead: &[("moto", "ok"), ("ministack", "ok")],
        why: "Reference, CreateQueue: InvalidAttributeName.",
    },
    Difference {
        check: "a deleted queue is gone, and its name is held for a minute",
        instead: &[
            ("moto", "send AWS.SimpleQueueService.NonExistentQueue, create ok"),
            ("ministack", "send AWS.SimpleQueueService.NonExistentQueue, create ok"),
        ],
        why: "Reference, DeleteQueue: wait at least 60 seconds before creating a queue with the same name; CreateQueue: QueueDeletedRecently.",
    },
    Difference {
        check: "a trace header of one entry of a batch belongs to that entry",
        instead: &[("moto", "none none"), ("ministack", "none none")],
        why: "Reference, SendMessageBatchRequestEntry, MessageSystemAttributes.",
    },
    Difference {
        check: "the trace header of the request becomes that of each of its messages",
        instead: &[("moto", "none none none"), ("ministack", "none none none")],
        why: "X-Ray guide, \"Amazon SQS and AWS X-Ray\": the header x-amzn-trace-id is stored as AWSTraceHeader.",
    },
    Difference {
        check: "no system attribute but the trace header can be sent",
        instead: &[("moto", "ok"), ("ministack", "ok")],
        why: "Reference, SendMessage: the only supported one is AWSTraceHeader.",
    },
    Difference {
        check: "a group has 1 to 128 letters, digits and signs",
        instead: &[
            ("moto", "128: ok, 129: ok, space: ok"),
            ("ministack", "128: ok, 129: ok, space: ok"),
        ],
        why: "Reference, SendMessage, MessageGroupId.",
    },
    Difference {
        check: "a standard queue refuses a deduplication id",
        instead: &[("moto", "ok"), ("ministack", "ok")],
        why: "Reference, SendMessage: MessageDeduplicationId applies only to FIFO queues.",
    },
    Difference {
        check: "an empty body is refused",
        instead: &[("moto", "ok")],
        why: "Reference, SendMessage: the minimum size is one character.",
    },
    Difference {
        check: "a body holds the characters of XML and no others",
        instead: &[("moto", "tab, line and emoji: ok, 0001: ok, FFFE: ok, DEL: ok")],
        why: "Reference, SendMessage: InvalidMessageContents.",
    },
    Difference {
        check: "names, types and values of attributes count",
        instead: &[("moto", "1024: ok, 1025: ok"), ("ministack", "1024: ok, 1025: ok")],
        why: "Guide, message metadata: all components count towards the size.",
    },
    Difference {
        check: "a message has at most ten attributes",
        instead: &[("moto", "10: ok, 11: ok"), ("ministack", "10: ok, 11: ok")],
        why: "Guide, message quotas.",
    },
    Difference {
        check: "a number is a number",
        instead: &[
            ("moto", "12: ok, -1.5e3: ok, abc: ok, 39 digits: ok"),
            ("ministack", "12: ok, -1.5e3: ok, abc: ok, 39 digits: ok"),
        ],
        why: "Guide, message metadata: up to 38 digits of precision.",
    },
    Difference {
        check: "a value is not empty",
        instead: &[
            ("moto", "String: ok, Number: ok, Binary: ok"),
            ("ministack", "String: ok, Number: ok, Binary: ok"),
        ],
        why: "Guide, message metadata: name, type and value must not be empty or null.",
    },
    Difference {
        check: "the name of an attribute follows the rules",
        instead: &[
            (
                "moto",
                "AWS.x: ok, amazon.x: ok, .a: ok, a.: ok, a..b: ok, a b: InvalidParameterValue, a-b_c.d: ok, 256: ok, 257: ok",
            ),
            (
                "ministack",
                "AWS.x: ok, amazon.x: ok, .a: ok, a.: ok, a..b: ok, a b: ok, a-b_c.d: ok, 256: ok, 257: ok",
            ),
        ],
        why: "Guide, message metadata, name.",
    },
    Difference {
        check: "a value holds the characters of XML and no others",
        instead: &[("moto", "ok"), ("ministack", "ok")],
        why: "Guide, message metadata: a String has the restrictions of the body.",
    },
    Difference {
        check: "a delay is 0 to 900 seconds",
        instead: &[
            ("moto", "-1: ok, 0: ok, 900: ok, 901: InvalidParameterValue"),
            ("ministack", "-1: ok, 0: ok, 900: ok, 901: ok"),
        ],
        why: "Reference, SendMessage, DelaySeconds.",
    },
    Difference {
        check: "an older handle succeeds and deletes nothing",
        instead: &[("moto", "ok, nothing"), ("ministack", "ReceiptHandleIsInvalid, x")],
        why: "Reference, DeleteMessage: with an older handle \"the request succeeds, but the message will not be deleted\".",
    },
    Difference {
        check: "the visibility of a deleted message cannot be changed",
        instead: &[("moto", "ReceiptHandleIsInvalid"), ("ministack", "ReceiptHandleIsInvalid")],
        why: "Seen on AWS: the handle is valid, the message is not there.",
    },
    Difference {
        check: "a visibility timeout is 0 to 43200 seconds",
        instead: &[
            ("moto", "-1: ok, 43201: InvalidParameterValue, 0: ok"),
            ("ministack", "-1: ok, 43201: ok, 0: ok"),
        ],
        why: "Reference, ChangeMessageVisibility.",
    },
    Difference {
        check: "a batch has at most ten entries",
        instead: &[(
            "moto",
            "10: ok, 11: AWS.SimpleQueueService.TooManyEntriesInBatchRequest, deletes: AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
        )],
        why: "Reference, DeleteMessageBatch: too many is told before the ids are looked at.",
    },
    Difference {
        check: "a bad character fails its own entry only",
        instead: &[("moto", "ok 0,1,2; failed , 3 sent")],
        why: "Reference, SendMessageBatch: the result of each message is reported individually.",
    },
    Difference {
        check: "a message over the queue's own limit fails its own entry only",
        instead: &[("moto", "unexpected InvalidParameterValue")],
        why: "Reference, SendMessageBatch: the result of each message is reported individually.",
    },
    Difference {
        check: "a moved message names the queue that it comes from",
        instead: &[("moto", "none")],
        why: "Reference, ReceiveMessage: DeadLetterQueueSourceArn.",
    },
    Difference {
        check: "maxReceiveCount may be a number or a text",
        instead: &[("moto", "ok ok, accepted")],
        why: "Console: maximum receives from 1 to 1000.",
    },
    Difference {
        check: "a dead-letter queue exists and is of the same type",
        instead: &[
            ("moto", "missing refused, fifo accepted"),
            ("ministack", "missing refused, fifo accepted"),
        ],
        why: "Guide, dead-letter queues: that of a FIFO queue must also be FIFO.",
    },
    Difference {
        check: "a redrive allow policy can deny",
        instead: &[("moto", "accepted"), ("ministack", "accepted")],
        why: "Reference, CreateQueue, RedriveAllowPolicy: denyAll.",
    },
    Difference {
        check: "a move task brings messages back to where they came from, as new ones",
        instead: &[("moto", "unexpected no code"), ("ministack", "unexpected InvalidAction")],
        why: "Reference, StartMessageMoveTask.",
    },
    Difference {
        check: "a move task can name another destination",
        instead: &[("moto", "unexpected no code"), ("ministack", "unexpected InvalidAction")],
        why: "Reference, StartMessageMoveTask.",
    },
    Difference {
        check: "a move task needs a dead-letter queue",
        instead: &[
            ("moto", "plain no code, missing no code"),
            ("ministack", "plain InvalidAction, missing InvalidAction"),
        ],
        why: "Reference, StartMessageMoveTask.",
    },
    Difference {
        check: "what was sent to a dead-letter queue has nowhere to go back to",
        instead: &[("moto", "unexpected no code"), ("ministack", "unexpected InvalidAction")],
        why: "Reference, StartMessageMoveTask: without a destination messages go to their own source queues.",
    },
    Difference {
        check: "the name of a FIFO queue ends in .fifo, and only that",
        instead: &[
            ("moto", "without InvalidParameterValue, with ok"),
            ("ministack", "without InvalidParameterValue, with ok"),
        ],
        why: "Reference, CreateQueue: a name with .fifo is that of a FIFO queue, which FifoQueue must say.",
    },
    Difference {
        check: "in a batch each FIFO message is judged alone",
        instead: &[("moto", "unexpected InvalidParameterValue")],
        why: "Reference, SendMessageBatch: the result of each message is reported individually.",
    },
    Difference {
        check: "a repeated deduplication id is accepted and not delivered",
        instead: &[("moto", "another id, x")],
        why: "Reference, SendMessage: the message is accepted as the one that was sent before.",
    },
    Difference {
        check: "a deduplication id outlives its message",
        instead: &[("moto", "x")],
        why: "Reference, SendMessage: SQS keeps track of the id also after the message is received and deleted.",
    },
    Difference {
        check: "deduplication can be scoped to the group",
        instead: &[("moto", "x")],
        why: "Reference, CreateQueue, DeduplicationScope.",
    },
    Difference {
        check: "the numbers of a group have 20 digits and rise",
        instead: &[("moto", "20 digits, the same when received, not rising")],
        why: "Reference, SendMessage: SequenceNumber keeps increasing for a group.",
    },
    Difference {
        check: "an expired handle does not delete a FIFO message",
        instead: &[("moto", "ok, nothing"), ("ministack", "ok, nothing")],
        why: "Seen on AWS: the receipt handle has expired.",
    },
    Difference {
        check: "a FIFO queue's new delay holds also for what was sent before",
        instead: &[("moto", "nothing"), ("ministack", "nothing")],
        why: "Guide, delay queues: for FIFO queues the setting is retroactive.",
    },
    Difference {
        check: "a queue name has at most 80 letters, digits, hyphens and underscores",
        instead: &[("ministack", "80: ok, 81: ok, dot: ok, empty: MissingParameter")],
        why: "Reference, CreateQueue, QueueName.",
    },
    Difference {
        check: "a second purge within a minute is refused",
        instead: &[("ministack", "ok")],
        why: "Reference, PurgeQueue: PurgeQueueInProgress within 60 seconds.",
    },
    Difference {
        check: "a receive asks for 1 to 10 messages and waits 0 to 20 seconds",
        instead: &[(
            "ministack",
            "0: InvalidParameterValue, 11: InvalidParameterValue, wait 21: ok, visibility 43201: ok",
        )],
        why: "Reference, ReceiveMessage; guide, quotas: 20 seconds, 12 hours.",
    },
    Difference {
        check: "a type is String, Number or Binary",
        instead: &[("ministack", "Text: ok, none: ok")],
        why: "Guide, message metadata, type.",
    },
    Difference {
        check: "deleting twice is harmless",
        instead: &[("ministack", "ok, ReceiptHandleIsInvalid")],
        why: "Reference, DeleteMessage: requests for a deleted message succeed.",
    },
    Difference {
        check: "twelve hours count from the receive",
        instead: &[("ministack", "ok")],
        why: "Reference, ChangeMessageVisibility: 12 hours from when ReceiveMessage received it; extending does not reset them.",
    },
    Difference {
        check: "a delay of 901 fails its own entry only",
        instead: &[("ministack", "ok 0,1; failed , 1 sent")],
        why: "Reference, SendMessageBatchRequestEntry, DelaySeconds.",
    },
    Difference {
        check: "a bad entry fails its own change of visibility only",
        instead: &[("ministack", "ok 0,2; failed 1 ReceiptHandleIsInvalid (sender)")],
        why: "Reference, ChangeMessageVisibilityBatch.",
    },
    Difference {
        check: "a dead-letter queue knows its sources",
        instead: &[("ministack", "unexpected InvalidAction")],
        why: "Reference, ListDeadLetterSourceQueues.",
    },
    Difference {
        check: "a FIFO dead-letter queue begins to count time anew, under the message's id",
        instead: &[
            ("moto", "same id, as before, another id"),
            ("ministack", "same id, as before, another id"),
        ],
        why: "Guide, dead-letter queues: a FIFO queue resets the enqueue timestamp; the deduplication id becomes the message id.",
    },
    Difference {
        check: "a handle whose time is over changes no visibility",
        instead: &[("moto", "ok, nothing"), ("ministack", "ok, nothing")],
        why: "Seen on AWS: the request succeeds and changes nothing.",
    },
    Difference {
        check: "an older handle changes no visibility",
        instead: &[("moto", "ok, nothing"), ("ministack", "ReceiptHandleIsInvalid, x")],
        why: "As with a handle whose time is over: it is that of an earlier receive.",
    },
    Difference {
        check: "an expired handle does not change the visibility of a FIFO message",
        instead: &[("moto", "ok, nothing"), ("ministack", "ok, nothing")],
        why: "As for DeleteMessage, seen on AWS: the receipt handle has expired.",
    },
    Difference {
        check: "a group comes up to its first message that is in flight",
        instead: &[("moto", "nothing, then 1,2"), ("ministack", "nothing, then 1,2")],
        why: "Seen on AWS: of a group, the messages before the first one in flight are received.",
    },
    Difference {
        check: "a batch is refused as a whole if a message lacks an id",
        instead: &[
            ("moto", "group MissingParameter, deduplication InvalidParameterValue, then nothing"),
            (
                "ministack",
                "group ok 0; failed 1 MissingParameter (sender), deduplication ok 0; failed 1 InvalidParameterValue (sender), then group",
            ),
        ],
        why: "Seen on AWS: the whole request is refused, with this code.",
    },
    Difference {
        check: "switches are read in any case",
        instead: &[("ministack", "True TRUE")],
        why: "Seen on AWS: FifoQueue may be True.",
    },
    Difference {
        check: "a purge forgets deduplication ids",
        instead: &[("ministack", "nothing")],
        why: "Seen on AWS: a message with the id of a purged one is delivered.",
    },
    Difference {
        check: "own attributes can be asked for all at once, in three ways",
        instead: &[("moto", "a,b  a,b"), ("ministack", "a,b  a,b")],
        why: "Seen on AWS: an asterisk alone asks for all.",
    },
    Difference {
        check: "an empty policy is none",
        instead: &[("moto", "none, then none")],
        why: "Reference, SetQueueAttributes: Policy is returned; seen on AWS: an empty one removes it.",
    },
];
