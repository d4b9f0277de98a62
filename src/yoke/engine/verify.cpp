#include "yoke/engine/verify.h"

#include <algorithm>
#include <charconv>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/data/dataset.h"
#include "yoke/data/sampler.h"
#include "yoke/engine/run_state.h"
#include "yoke/engine/speed_split.h"
#include "yoke/engine/verify_pipeline.h"
#include "yoke/engine/verify_trainee.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/plan/schedules/schedule.h"

namespace yoke::engine {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr const char* kWords =
    "data=N, accumulate=N, zero=0|1|2, split=8:4, sync=threads, sync=ps, servers=N, policy=RULE, k=N, "
    "pipeline=N, "
    "schedule=NAME, microbatches=N, chunks=N, vertical_sync=1, with commas";

void set_word(Layout& layout, const std::string& word) {
  size_t equals = word.find('=');
  std::string name = word.substr(0, equals);
  if (word == "sync=threads" || word == "sync=allreduce" || word == "sync=ps") {
    layout.threads = word == "sync=threads";
    layout.served = word == "sync=ps";
    return;
  }
  if (name == "policy" && equals != std::string::npos) {
    layout.policy = plan::to_string(plan::parse_rule(word.substr(equals + 1)));
    return;
  }
  if (name == "split" && equals != std::string::npos) {
    layout.split = word.substr(equals + 1);
    return;
  }
  if (name == "schedule" && equals != std::string::npos) {
    layout.schedule.schedule = word.substr(equals + 1);
    plan::parse_schedule_kind(layout.schedule.schedule);
    return;
  }
  int64_t value = 0;
  const char* end = word.data() + word.size();
  bool number =
      equals != std::string::npos && std::from_chars(word.data() + equals + 1, end, value).ptr == end;
  struct Number {
    const char* name;
    int64_t* place;
    int64_t least = 1, most = INT64_MAX;
  };
  const Number numbers[] = {{"data", &layout.data},
                            {"accumulate", &layout.accumulate},
                            {"zero", &layout.zero, 0, 2},
                            {"servers", &layout.servers},
                            {"k", &layout.k},
                            {"pipeline", &layout.pipeline},
                            {"microbatches", &layout.schedule.microbatches},
                            {"chunks", &layout.schedule.chunks}};
  if (number && name == "vertical_sync" && value == 1) {
    layout.schedule.vertical_sync = true;
    return;
  }
  for (const Number& known : numbers) {
    if (number && name == known.name && value >= known.least && value <= known.most) {
      *known.place = value;
      return;
    }
  }
  throw ConfigError("layout '{}': '{}' is not understood. A layout is {}.", layout.text, word, kWords);
}

void check_batch(int64_t batch, const Layout& layout) {
  parse_split(layout.split, static_cast<int>(layout.data));
  if (layout.threads && (layout.zero > 0 || layout.split != "equal"))
    throw ConfigError("layout '{}': sync=threads goes with data and accumulate only.", layout.text);
  if (layout.split == "speed" || (layout.split != "equal" && layout.accumulate > 1))
    throw ConfigError("layout '{}': split is equal or shares (8:4), without accumulate.", layout.text);
  if (batch % (layout.data * layout.accumulate) != 0)
    throw ConfigError("layout '{}': a batch of {} cannot be cut into {} equal parts. Set data.batch_size.",
                      layout.text, batch, layout.data * layout.accumulate);
}

}  // namespace

double Differences::largest() const {
  return std::max({loss, gradient, parameter});
}

std::vector<Layout> parse_layouts(const std::string& text) {
  std::vector<Layout> layouts;
  for (const std::string& part : split(text, ';')) {
    Layout layout;
    layout.text = trim(part);
    if (layout.text.empty()) continue;
    for (const std::string& word : split(layout.text, ',')) set_word(layout, trim(word));
    layouts.push_back(layout);
  }
  if (layouts.empty()) throw ConfigError("--layouts '{}': no layout. Say for example \"data=2\".", text);
  return layouts;
}

Verification verify(const VerifyOptions& options, const Layout& layout) {
  if (layout.served) return verify_with_servers(options, layout);
  if (layout.pipeline > 1) return verify_pipeline(options, layout);
  int64_t batch = options.worker.batch_size;
  check_batch(batch, layout);
  WorkerOptions alone = options.worker;
  alone.type = options.type;
  Trainee reference(alone);
  Tensors weights;
  for (const auto& [name, tensor] : named_tensors(*reference.worker->model.module))
    weights.push_back(tensor.clone());
  auto seed = static_cast<uint64_t>(options.worker.seed);
  auto dataset = data::open(options.data, data::Split::kTrain, reference.worker->model.sample, seed);
  data::DataOptions cut = options.data;
  cut.batch_size = batch;
  data::Sampler sampler(dataset->size(), cut, seed);

  Verification result;
  comm::run_ranks(layout.threads ? 1 : static_cast<int>(layout.data), [&](comm::Communicator& comm) {
    WorkerOptions own = alone;
    own.replicas = &comm;
    own.zero = layout.zero;
    own.accumulate = layout.accumulate;
    own.threads = layout.threads ? layout.data : 1;
    own.batch_size = batch / layout.data / layout.accumulate;
    Trainee trainee(own);
    trainee.start_from(weights);
    data::DataOptions part = options.data;
    part.batch_size = batch / comm.size();
    data::Sampler own_samples(dataset->size(), part, seed, {comm.rank(), comm.size()});
    if (!layout.threads) own_samples.set_shares(parse_split(layout.split, comm.size()));
    comm.barrier().wait();
    for (int64_t step = 0; step < options.steps; ++step) {
      std::vector<int64_t> all = sampler.indices(step), mine = own_samples.indices(step);
      double weight = own_samples.weight_at(own_samples.after({}, step));
      double loss = trainee.compute(*dataset, mine, layout.accumulate, weight);
      Tensors gradients = trainee.worker->strategy->gradients();
      if (comm.rank() == 0) {
        double expected = reference.compute(*dataset, all, 1);
        result.loss.push_back(loss);
        result.reference_loss.push_back(expected);
        Differences& worst = result.worst;
        worst.loss = std::max(worst.loss, std::abs(loss - expected) / std::max(1.0, std::abs(expected)));
        worst.gradient =
            std::max(worst.gradient, relative_difference(gradients, reference.worker->strategy->gradients()));
        reference.worker->strategy->commit({options.worker.optimizer.lr, false});
      }
      trainee.worker->strategy->commit({options.worker.optimizer.lr, false});
      trainee.worker->strategy->drain();
      if (comm.rank() == 0)
        result.worst.parameter =
            std::max(result.worst.parameter, relative_difference(trainee.parameters, reference.parameters));
    }
  });
  return result;
}

}  // namespace yoke::engine
