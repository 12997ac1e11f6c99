"""What an executor needs before it can start tasks."""

from onager.executor.work import blobs_needed
from onager.protocol import onager_pb2 as pb


def test_the_plans_of_fused_stages_are_needed_beside_the_stages_own():
    fused = [pb.FusedStage(stage_id=2, plan_digest="b"), pb.FusedStage(stage_id=3, plan_digest="c")]
    assert blobs_needed(pb.TaskSet(work=pb.QUERY, plan_digest="a", fused=fused)) == ("a", "b", "c")


def test_inputs_that_are_a_blob_are_needed():
    assert blobs_needed(pb.TaskSet(work=pb.QUERY, plan_digest="a", inputs_digest="i")) == ("a", "i")


def test_planning_again_and_listing_more_need_the_jobs_settings() -> None:
    replan = pb.TaskSet(work=pb.REPLAN, spec_digest="s", replan=pb.ReplanTask(frame_digest="f"))
    assert set(blobs_needed(replan)) == {"s", "f"}
    feed = pb.TaskSet(work=pb.FEED, spec_digest="s", plan_digest="a", portion=pb.StagePortion(digest="p"))
    assert set(blobs_needed(feed)) == {"s", "a", "p"}
