#include "yoke/metrics/pipeline_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::metrics {
namespace {

using ::testing::HasSubstr;

// Two stages, two micro-batches, `minibatches` of them counted anew in each.
PipelineEvents two_stages(int minibatches) {
  PipelineEvents out{
      .schedule = "gpipe", .stages = 2, .microbatches = 2, .chunks = 1, .replicas = {}, .events = {}};
  for (int k = 0; k < minibatches; ++k) {
    double t = 100 + 10 * k;
    for (int b = 0; b < 2; ++b) {
      out.events.push_back({0, 0, SpanKind::kForward, b, 0, t + b, t + b + 1});
      out.events.push_back({1, 1, SpanKind::kForward, b, 0, t + b + 1, t + b + 2});
      out.events.push_back({1, 1, SpanKind::kBackward, b, 0, t + b + 3, t + b + 4});
      out.events.push_back({0, 0, SpanKind::kBackward, b, 0, t + b + 4, t + b + 5});
    }
  }
  return out;
}

TEST(PipelineEvents, ReadBackWhatWasWritten) {
  PipelineEvents events = parse_pipeline_events(to_json(two_stages(1)), "p.json");
  EXPECT_EQ(parse_pipeline_events(to_json(events), "p.json"), events);
  EXPECT_EQ(events.events.size(), 8u);
  EXPECT_EQ(events.events.front().rank, 0);
}

TEST(PipelineEvents, MicrobatchesAreCountedThrough) {
  PipelineEvents events = parse_pipeline_events(to_json(two_stages(3)), "p.json");
  EXPECT_EQ(last_minibatch(events), 2);
  PipelineEvents last = minibatch_of(events, 2);
  EXPECT_EQ(last.events.size(), 8u);
  for (const PipelineEvent& event : last.events) {
    EXPECT_GE(event.start, 120);
    EXPECT_LT(event.microbatch, 2);
  }
}

TEST(PipelineEvents, AMinibatchCutShortDoesNotCount) {
  PipelineEvents torn = two_stages(2);
  torn.events.pop_back();
  EXPECT_EQ(last_minibatch(parse_pipeline_events(to_json(torn), "p.json")), 0);
  torn.events.resize(3);
  EXPECT_EQ(last_minibatch(parse_pipeline_events(to_json(torn), "p.json")), -1);
}

TEST(PipelineEvents, BecomeATimelineThatStartsAtZero) {
  Timeline timeline = timeline_of(parse_pipeline_events(to_json(two_stages(1)), "p.json"));
  EXPECT_EQ(timeline.rows, (std::vector<std::string>{"stage 0", "stage 1"}));
  EXPECT_DOUBLE_EQ(timeline.makespan, 6);
  EXPECT_DOUBLE_EQ(timeline.idle_fraction(), 1 - 8.0 / 12);
}

TEST(PipelineEvents, ChunksAndReplicasFindTheirRows) {
  PipelineEvents events =
      parse_pipeline_events(R"({"schedule":"interleaved","stages":2,"microbatches":2,"chunks":2,"events":[
      {"rank":0,"stage":0,"kind":"F","microbatch":0,"start":5,"end":6},
      {"rank":1,"stage":1,"kind":"F","microbatch":0,"start":6,"end":7},
      {"rank":0,"stage":2,"kind":"F","microbatch":0,"start":7,"end":8},
      {"rank":0,"stage":0,"kind":"send_grad","microbatch":0,"start":4,"end":9},
      {"rank":1,"stage":1,"chunk":1,"kind":"F","microbatch":0,"start":8,"end":9},
      {"rank":3,"stage":1,"kind":"F","microbatch":1,"start":6,"end":7}]})",
                            "p.json");
  EXPECT_EQ(events.replicas, (std::vector<int>{1, 2})) << "ranks 1 and 3 share the micro-batches";
  Timeline timeline = timeline_of(events);
  EXPECT_EQ(timeline.rows, (std::vector<std::string>{"stage 0", "stage 1.0", "stage 1.1"}));
  EXPECT_DOUBLE_EQ(timeline.makespan, 4) << "transfers before and after the passes do not count";
  int second_chunks = 0;
  for (const TimelineSpan& span : timeline.spans) second_chunks += span.chunk;
  EXPECT_EQ(second_chunks, 2);
}

TEST(PipelineEvents, RanksWithTheSameMicrobatchesAreCopies) {
  PipelineEvents events = two_stages(1);
  for (size_t i = 0; i < 8; ++i) {
    PipelineEvent copy = events.events[i];
    copy.rank += 2;
    events.events.push_back(copy);
  }
  EXPECT_TRUE(parse_pipeline_events(to_json(events), "p.json").replicas.empty());
}

TEST(PipelineEvents, MistakesAreNamed) {
  auto error_of = [](const std::string& text) -> std::string {
    try {
      parse_pipeline_events(text, "p.json");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  auto with = [](const std::string& head, const std::string& event) {
    return "{\"schedule\":\"1f1b\"," + head + ",\"events\":[" + event + "]}";
  };
  const std::string head = "\"stages\":2,\"microbatches\":2";
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("p.json"));
  EXPECT_THAT(error_of("{}"), HasSubstr("schedule"));
  EXPECT_THAT(error_of(with("\"stages\":0,\"microbatches\":2", "")), HasSubstr("stages = 0"));
  EXPECT_THAT(error_of(with(head, "")), HasSubstr("0 events"));
  EXPECT_THAT(error_of(with(head, "{\"rank\":0}")), HasSubstr("events[0]"));
  EXPECT_THAT(error_of(with(head, R"({"rank":0,"stage":2,"kind":"F","microbatch":0,"start":0,"end":1})")),
              HasSubstr("stage = 2"));
  EXPECT_THAT(error_of(with(head, R"({"rank":0,"stage":0,"kind":"X","microbatch":0,"start":0,"end":1})")),
              HasSubstr("F B W update send recv"));
  EXPECT_THAT(error_of(with(head, R"({"rank":0,"stage":0,"kind":"F","microbatch":0,"start":2,"end":1})")),
              HasSubstr("from 2 to 1"));
  EXPECT_THAT(error_of(with(head, R"({"rank":0,"stage":0,"kind":"F","microbatch":0,"start":null,"end":1})")),
              HasSubstr("events[0]"));
  EXPECT_THAT(error_of(with(head + ",\"replicas\":[1]", "")), HasSubstr("1 replica counts for 2 stages"));
}

}  // namespace
}  // namespace yoke::metrics
