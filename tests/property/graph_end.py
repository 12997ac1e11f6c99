"""What holds when a job has ended."""

from onager.execution_graph import (
    EventBatch,
    HeldTask,
    JobState,
    RunningStage,
    Succeeded,
    SuccessfulStage,
    apply,
    apply_all,
    decode_batch,
    encode_batch,
)
from onager.execution_graph.intervals import IntervalReader
from tests.property.graph_launches import Launches


class EndOfJob(Launches):
    """Checks the outputs of the job, and its log."""

    def job_has_one_output_a_partition(self) -> None:
        if not isinstance(self.graph.outcome, Succeeded):
            assert self.graph.state in (JobState.FAILED, JobState.CANCELLED)
            return
        result = self.graph.result_stage
        assert isinstance(result, SuccessfulStage)
        assert sorted(result.ledger.outputs) == list(range(result.spec.partitions))
        if self.graph.is_streaming:
            self.all_have_read_the_same_attempts()
            return
        for stage in self.graph.stages[1:]:
            for partition, found in stage.ledger.outputs.items():
                assert not self.has_given_up or found.nonce not in self.streamed, "rows of two attempts are mixed"
                if found.nonce in self.rows and stage.spec.taken is None:
                    derived = self.rows_of(stage.spec, partition, found.nonce)
                    assert self.rows[found.nonce] == derived, "rows were taken from a run that does not count"
        nonces = [o.nonce for s in self.graph.stages for o in s.ledger.outputs.values()]
        assert len(set(nonces)) == len(nonces), "an execution counts twice"

    def all_have_read_the_same_attempts(self) -> None:
        """Whatever counts was made of rows of one attempt of each task, which is the one that counts, if any does."""
        read: dict[tuple[int, int], HeldTask] = {}
        for stage in self.graph.stages[1:]:
            for partition, found in stage.ledger.outputs.items():
                winner = HeldTask(stage.spec.stage_id, stage.attempt, partition, found.task_attempt)
                assert read.setdefault((stage.spec.stage_id, partition), winner) == winner
                for stage_id, p, source in self.reported.get(winner, ()):
                    assert read.setdefault((stage_id, p), source) == source, "two attempts of a task were read"

    def the_log_gives_the_graph(self) -> None:
        again = self.start
        for event in self.log:
            again = apply(again, event)
        assert again == self.graph
        assert apply_all(self.start, self.log) == self.graph
        stored = decode_batch(encode_batch(EventBatch(batch_id="all", events=tuple(self.log))))
        assert apply_all(self.start, stored.events) == self.graph

    def the_log_gives_the_attempts_in_hand(self) -> None:
        reader, graph = IntervalReader(self.graph), self.start
        for position, event in enumerate(self.log, 1):
            reader.read(position, EventBatch(batch_id="b", events=(event,)))
            graph = apply(graph, event)
            in_hand = {
                (stage.spec.stage_id, stage.attempt, partition, task.attempt)
                for stage in graph.stages
                if isinstance(stage, RunningStage) and graph.is_active
                for partition, task in stage.in_hand()
            }
            assert {attempt.key for attempt in reader.in_hand()} == in_hand
