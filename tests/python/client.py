"""A program that knows nothing but the published proto files: it produces, claims, completes, locks and watches while the
leader dies, and checks that nothing is lost or doubled. Used by the suite; prints `ready` before the deaths may begin, and
`whole` at the end.

    client.py CA_FILE TOKEN ADDRESS...
"""

import sys
import threading
import time
import uuid

import grpc

from dolomedes.v1 import lock_pb2, lock_pb2_grpc, queue_pb2, queue_pb2_grpc, registry_pb2, registry_pb2_grpc

MESSAGES = 600
DEADLINE = 90
FINAL = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}


class Token(grpc.AuthMetadataPlugin):
    def __init__(self, token):
        self.token = token

    def __call__(self, context, callback):
        callback((("authorization", f"Bearer {self.token}"),), None)


class Cluster:
    """Asks one member after the other, and repeats what may be repeated."""

    def __init__(self, ca, token, addresses):
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(ca), grpc.metadata_call_credentials(Token(token))
        )
        options = (
            ("grpc.ssl_target_name_override", "cluster.dolomedes"),
            ("grpc.max_reconnect_backoff_ms", 300),
            ("grpc.initial_reconnect_backoff_ms", 50),
        )
        self.channels = [grpc.secure_channel(address, credentials, options) for address in addresses]
        self.client = uuid.uuid4().bytes
        self.sequence = 0
        self.lock = threading.Lock()
        self.turn = 0

    def operation(self):
        with self.lock:
            self.sequence += 1
            return queue_pb2.OperationId(client=self.client, sequence=self.sequence, opening=True)

    def call(self, stub, method, request, timeout=5):
        end = time.monotonic() + DEADLINE
        while True:
            channel = self.channels[self.turn % len(self.channels)]
            try:
                return getattr(stub(channel), method)(request, timeout=timeout)
            except grpc.RpcError as error:
                if error.code() in FINAL or time.monotonic() > end:
                    raise
                self.turn += 1
                time.sleep(0.02)


def produce(cluster):
    for first in range(0, MESSAGES, 5):
        messages = [
            queue_pb2.NewMessage(key=b"key-%d" % (number % 7), payload=b"%d" % number)
            for number in range(first, first + 5)
        ]
        request = queue_pb2.PutRequest(queue="python", messages=messages, operation=cluster.operation())
        reply = cluster.call(queue_pb2_grpc.QueuesStub, "Put", request)
        assert all(status == queue_pb2.PUT_STATUS_ACCEPTED for status in reply.statuses), reply
        time.sleep(0.01)


def consume(cluster, done):
    queues = queue_pb2_grpc.QueuesStub
    attach = queue_pb2.AttachRequest(queue="python", number=4711)
    consumer = cluster.call(queues, "Attach", attach).consumer
    while len(done) < MESSAGES:
        claim = queue_pb2.ClaimRequest(
            queue="python", consumer=consumer, keys=4, per_key=10, lease_ms=3000, wait_ms=300
        )
        for grant in cluster.call(queues, "Claim", claim).grants:
            results = [
                queue_pb2.Result(id=message.id, attempt=message.attempt, done=queue_pb2.Done())
                for message in grant.messages
            ]
            completion = queue_pb2.Completion(lease=grant.lease, results=results, release=True)
            request = queue_pb2.CompleteRequest(
                queue="python", consumer=consumer, completions=[completion], operation=cluster.operation()
            )
            verdict = cluster.call(queues, "Complete", request).verdicts[0]
            for message, accepted in zip(grant.messages, verdict.accepted):
                if accepted:
                    done.append(int(message.payload))


def count_under_lock(cluster, times):
    """Raises a number in the registry under a lock; without exclusion, some raises would be lost."""
    locks, registry = lock_pb2_grpc.LocksStub, registry_pb2_grpc.RegistryStub
    opened = cluster.call(
        locks, "OpenSession", lock_pb2.OpenSessionRequest(ttl_ms=30_000, operation=cluster.operation())
    )
    for _ in range(times):
        acquire = lock_pb2.AcquireRequest(lock="python", session=opened.session, wait=True, wait_ms=2000)
        fence = 0
        while fence == 0:
            fence = cluster.call(locks, "Acquire", acquire).fence
        found = cluster.call(registry, "Get", registry_pb2.GetRequest(key=b"python/count"))
        count = int(found.key.value or b"0")
        held = registry_pb2.Condition(held=registry_pb2.LockHeld(lock="python", fence=fence))
        put = registry_pb2.Operation(set=registry_pb2.SetKey(key=b"python/count", value=b"%d" % (count + 1)))
        txn = registry_pb2.TxnRequest(conditions=[held], operations=[put], operation=cluster.operation())
        assert cluster.call(registry, "Txn", txn).written
        release = lock_pb2.ReleaseRequest(lock="python", session=opened.session, fence=fence)
        cluster.call(locks, "Release", release)


def watch(cluster, seen, last):
    after = 1
    while not seen or seen[-1] < last:
        channel = cluster.channels[cluster.turn % len(cluster.channels)]
        request = registry_pb2.WatchRequest(prefix=b"python/count", **{"from": after})
        try:
            for reply in registry_pb2_grpc.RegistryStub(channel).Watch(request, timeout=DEADLINE):
                seen.extend(int(change.value) for change in reply.changes)
                after = reply.next
                if seen and seen[-1] >= last:
                    return
        except grpc.RpcError as error:
            if error.code() in FINAL:
                raise
            cluster.turn += 1
            time.sleep(0.05)


def main():
    ca_file, token, *addresses = sys.argv[1:]
    with open(ca_file, "rb") as file:
        ca = file.read()

    def cluster():
        return Cluster(ca, token, addresses)

    first = cluster()
    create = queue_pb2.CreateQueueRequest(name="python", operation=first.operation())
    first.call(queue_pb2_grpc.QueuesStub, "CreateQueue", create)
    done, seen, failures = [], [], []
    times = 40

    def guarded(work, *arguments):
        def run():
            try:
                work(*arguments)
            except Exception as error:  # Reported below; a thread's own traceback would not fail the program.
                failures.append(error)

        return threading.Thread(target=run)

    threads = [
        guarded(produce, first),
        guarded(consume, cluster(), done),
        guarded(count_under_lock, cluster(), times),
        guarded(count_under_lock, cluster(), times),
        guarded(watch, cluster(), seen, 2 * times),
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert sorted(done) == list(range(MESSAGES)), f"{len(done)} done, {len(set(done))} distinct"
    assert seen == list(range(1, 2 * times + 1)), seen
    print("whole", flush=True)


if __name__ == "__main__":
    main()
