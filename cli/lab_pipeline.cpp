#include "cli/lab_pipeline.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/lab_pipeline_accuracy.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"
#include "yoke/report/timeline_svg.h"
#include "yoke/sim/pipeline.h"

namespace yoke::cli {

const std::vector<LabOption> kPipelineOptions = {
    {"--stages", "4", "3", "stages of the pipeline"},
    {"--microbatches", "8", "6", "micro-batches of the timelines"},
    {"--up-to", "64", "16", "largest number of micro-batches of the curves"},
    {"--forward", "10ms", "10ms", "of a stage and micro-batch"},
    {"--backward", "20ms", "20ms", "the same, of the whole backward"},
    {"--transfer", "0ms", "0ms", "of an activation or gradient to the next stage"},
    {"--chunks", "2", "2", "interleaved: chunks of layers per device"},
    {"--methods", "bsp,gpipe,1f1b,pipedream,2bw", "bsp,1f1b,pipedream",
     "to train, for accuracy against time"},
    {"--epochs", "12", "2", "of each; 0: nothing is trained"},
    {"--bandwidth", "100mbit", "100mbit", "of a worker's link, for accuracy against time"},
    {"--latency", "0.2ms", "0.2ms", "of a message, likewise"},
};

namespace {

using plan::ScheduleKind;

constexpr ScheduleKind kKinds[] = {ScheduleKind::kNaive,       ScheduleKind::kGpipe, ScheduleKind::k1F1B,
                                   ScheduleKind::kInterleaved, ScheduleKind::kZbH1,  ScheduleKind::kPipedream,
                                   ScheduleKind::k2BW};
constexpr int kMinibatchesOf2bw = 2;  // so that it keeps two versions
constexpr int kMinibatchesDrawn = 3;

struct Measured {
  plan::Schedule schedule;
  sim::PipelineRun run;
  int peak = 0, versions = 1;
};

class PipelineLab {
 public:
  explicit PipelineLab(Lab& lab)
      : lab_(lab),
        stages_(lab.values.integer("--stages", 2, 64)),
        microbatches_(lab.values.integer("--microbatches", 1, 512)),
        up_to_(lab.values.integer("--up-to", 1, 4096)),
        chunks_(lab.values.integer("--chunks", 1, 16)),
        forward_(lab.values.duration("--forward")),
        backward_(lab.values.duration("--backward")),
        accuracy_(lab, stages_, forward_, backward_) {
    if (!(forward_ > 0 && backward_ > 0))
      throw ConfigError("--forward {} and --backward {}: expected times above 0.", forward_, backward_);
    costs_.forward = {forward_};
    costs_.backward = {backward_};
    costs_.transfer = {lab.values.duration("--transfer")};
  }

  void run() {
    lab_.page.title = "Pipeline schedules";
    lab_.page.about = fmt::format(
        "{} stages, {} forward and {} backward of a micro-batch, transfers of {}, on a virtual clock.",
        stages_, format_duration(forward_), format_duration(backward_),
        costs_.transfer[0] > 0 ? format_duration(costs_.transfer[0]) : "no time");
    lab_.expect(std::size(kKinds) + 1 + accuracy_.parts());
    report::LabTable table{
        {"schedule", "makespan", "idle", "idle, theory", "activations, first stage", "weight versions"}, {}};
    lab_.page.section(fmt::format("Timelines of {} micro-batches", microbatches_));
    for (ScheduleKind kind : kKinds) lab_.part(plan::to_string(kind), [&] { timeline(kind, table); });
    table.notes = {
        "Idle: share of the devices' time without a pass, from the first forward to the last backward. "
        "Activations: "
        "micro-batches (of a chunk) whose outputs wait for their backward pass. Weight versions: copies of "
        "the "
        "weights that the first stage keeps.",
        "naive, gpipe, 1f1b, interleaved and zb-h1 empty the pipeline before they update. pipedream updates "
        "after "
        "every backward and 2bw after every minibatch, without emptying it: their idle time is that of the "
        "start and "
        "the end of the run. The number below a micro-batch is the version of its weights."};
    lab_.show(table);
    lab_.part("idle time against micro-batches", [&] { bubbles(); });
    accuracy_.run();
    lab_.page.result = fmt::format(
        "With {} stages the flushing schedules idle (p-1)/(m+p-1) of the time: {:.1f} % at {} micro-batches, "
        "{:.1f} "
        "% at {}.",
        stages_, 100 * flushed(microbatches_), microbatches_, 100 * flushed(up_to_), up_to_);
  }

 private:
  double flushed(int m) const { return (stages_ - 1.0) / (m + stages_ - 1.0); }

  // Idle share by formula; negative: none is known for these counts.
  double theory(ScheduleKind kind, int m) const {
    const double p = stages_, f = forward_, b = backward_, work = m * (f + b);
    auto idle = [&](double makespan) { return 1 - work / makespan; };
    if (costs_.transfer[0] > 0) return -1;
    switch (kind) {
      case ScheduleKind::kNaive:
        return 1 - 1 / p;
      case ScheduleKind::kInterleaved:
        return m % stages_ == 0 ? idle(work + (p - 1) * (f + b) / chunks_) : -1;
      case ScheduleKind::kZbH1:  // the weight part is half of the backward
        return m >= p && b == 2 * f ? idle(work + (p - 1) * (f + b - 2 * (b / 2))) : -1;
      default:
        return flushed(m);
    }
  }

  Measured measure(ScheduleKind kind, int m) const {
    plan::ScheduleRequest request;
    request.kind = kind;
    request.stages = stages_;
    request.microbatches = m;
    if (kind == ScheduleKind::kInterleaved) request.chunks = chunks_;
    if (kind == ScheduleKind::k2BW && m % kMinibatchesOf2bw == 0 && m / kMinibatchesOf2bw >= stages_) {
      request.minibatches = kMinibatchesOf2bw;
      request.microbatches = m / kMinibatchesOf2bw;
    }
    Measured out{plan::make_schedule(request), {}};
    out.run = sim::simulate_pipeline(out.schedule, costs_);
    for (const plan::Occupancy& one : plan::occupancy(out.schedule)) {
      out.peak = std::max(out.peak, one.peak_activations);
      out.versions = std::max(out.versions, one.versions);
    }
    return out;
  }

  // 2bw uses the weights before those of the newest minibatch: its versions differ from the third one on.
  void draw_timeline(ScheduleKind kind, const std::string& name, const Measured& measured) {
    std::string title = fmt::format("{}, {} micro-batches", name, microbatches_);
    metrics::Timeline drawn = sim::timeline_of(measured.schedule, measured.run);
    if (kind == ScheduleKind::k2BW) {
      plan::ScheduleRequest request{.kind = kind, .stages = stages_, .microbatches = stages_};
      request.minibatches = kMinibatchesDrawn;
      const plan::Schedule schedule = plan::make_schedule(request);
      drawn = sim::timeline_of(schedule, sim::simulate_pipeline(schedule, costs_));
      title = fmt::format("{}, {} minibatches of {} micro-batches", name, kMinibatchesDrawn, stages_);
    }
    lab_.page.add({"timeline_" + name, "", report::timeline_svg(title, {drawn}), "", /*wide=*/true});
  }

  void timeline(ScheduleKind kind, report::LabTable& table) {
    const Measured measured = measure(kind, microbatches_);
    const double expected = theory(kind, microbatches_), idle = measured.run.bubble_fraction();
    const std::string name = plan::to_string(kind);
    draw_timeline(kind, name, measured);
    const std::string told = expected < 0 ? "–" : fmt::format("{:.1f} %", 100 * expected);
    table.rows.push_back({name, format_duration(measured.run.makespan), fmt::format("{:.1f} %", 100 * idle),
                          told, fmt::format("{}", measured.peak), fmt::format("{}", measured.versions)});
    lab_.result({{"schedule", name},
                 {"stages", stages_},
                 {"microbatches", microbatches_},
                 {"makespan", measured.run.makespan},
                 {"bubble_fraction", idle},
                 {"peak_activations", measured.peak},
                 {"versions", measured.versions}});
    if (expected >= 0) lab_.document["results"].back()["bubble_fraction_theory"] = expected;
  }

  void bubbles() {
    report::LineChart chart{.title = "Idle time against micro-batches",
                            .x_label = "micro-batches",
                            .y_label = "idle",
                            .unit = report::Unit::kPercent,
                            .from_zero = true,
                            .log_x = true};
    report::LineChart memory{.title = "Activations against micro-batches",
                             .x_label = "micro-batches",
                             .y_label = "micro-batches kept, busiest stage",
                             .log = true,
                             .log_x = true};
    report::Series flush{.name = "(p-1)/(m+p-1)", .colour = 6, .theory = true};
    report::Series chunked{.name = fmt::format("interleaved, v = {}", chunks_), .colour = 7, .theory = true};
    std::vector<int> counts;
    for (int m = 1; m <= up_to_; m = std::max(m + 1, m * 5 / 4)) {
      counts.push_back(m);
      flush.points.push_back({static_cast<double>(m), flushed(m)});
      const double idle = theory(ScheduleKind::kInterleaved, m);
      if (idle >= 0) chunked.points.push_back({static_cast<double>(m), idle});
    }
    int colour = 0;
    nlohmann::json curves;
    for (ScheduleKind kind : kKinds) {
      report::Series idle{.name = plan::to_string(kind), .colour = ++colour};
      report::Series kept = idle;
      for (int m = 1; m <= up_to_; m *= 2) {
        if (kind == ScheduleKind::kInterleaved && m % stages_ != 0) continue;
        if (kind == ScheduleKind::k2BW && m < stages_) continue;  // a version would be missing
        const Measured measured = measure(kind, m);
        idle.points.push_back({static_cast<double>(m), measured.run.bubble_fraction()});
        kept.points.push_back({static_cast<double>(m), static_cast<double>(measured.peak)});
        curves[idle.name].push_back({m, measured.run.bubble_fraction(), measured.peak});
      }
      if (idle.points.empty()) continue;
      chart.series.push_back(std::move(idle));
      memory.series.push_back(std::move(kept));
    }
    lab_.document["curves"] = std::move(curves);
    chart.series.push_back(std::move(flush));
    if (!chunked.points.empty()) chart.series.push_back(std::move(chunked));
    lab_.page.section("Idle time and memory against micro-batches");
    lab_.page.add({"bubble", "Idle time", report::to_svg(chart),
                   "Dashed: the formulas. More micro-batches per minibatch fill the pipeline better."});
    lab_.page.add(
        {"activations", "Activations", report::to_svg(memory),
         "gpipe keeps all micro-batches, 1f1b at most one per stage ahead of it, whatever their number."});
  }

  Lab& lab_;
  const int stages_, microbatches_, up_to_, chunks_;
  const double forward_, backward_;
  sim::PipelineCosts costs_;
  PipelineAccuracy accuracy_;
};

}  // namespace

void run_lab_pipeline(Lab& lab) {
  PipelineLab(lab).run();
}

}  // namespace yoke::cli
