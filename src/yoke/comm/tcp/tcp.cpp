#include "yoke/comm/tcp/tcp.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>
#include <tuple>

#include "yoke/comm/sum_of_shares.h"
#include "yoke/comm/tcp/executor.h"
#include "yoke/comm/tcp/measure.h"
#include "yoke/comm/tcp/point_to_point.h"
#include "yoke/kernels/reduce.h"

namespace yoke::comm {
namespace {

using plan::Algorithm;
using plan::Collective;

// Compiled programs are cached for the sizes of a training loop; with many sizes the cache is cleared.
constexpr size_t kMostPrograms = 256;
// Up to this many ranks reduce_scatter uses `direct`: the bytes of a ring, one round, and the input is not
// modified.
constexpr int kDirectRanks = 8;
constexpr size_t kAlignment = 4096;

bool reduces(Collective op) {
  return op == Collective::kAllReduce || op == Collective::kReduce || op == Collective::kReduceScatter;
}

bool rounds(const Operation& operation) {
  DataType type = operation.descriptor.type;
  bool half = type == DataType::kFloat16 || type == DataType::kBFloat16;
  return half && operation.reduce != ReduceOp::kMax && operation.reduce != ReduceOp::kMin;
}

// The rank that combines an element has all contributions at once.
bool all_meet(Algorithm algorithm) {
  return algorithm == Algorithm::kDirect || algorithm == Algorithm::kExchange ||
         algorithm == Algorithm::kSummation;
}

bool crowded(const TcpSetup& setup) {
  const std::string& here = setup.members[static_cast<size_t>(setup.rank)].machine;
  auto neighbours = std::count_if(setup.members.begin(), setup.members.end(),
                                  [&](const cluster::Member& member) { return member.machine == here; });
  return neighbours > static_cast<int64_t>(std::thread::hardware_concurrency());
}

class TcpBackend final : public Backend {
 public:
  explicit TcpBackend(const TcpSetup& setup)
      : setup_(setup),
        links_(setup_, "data"),
        executor_(links_, counts_, crowded(setup_)),
        point_to_point_(setup_, counts_),
        cost_(setup.cost),
        cost_known_(!setup.measures_cost || setup.size <= 2) {}

  const std::string& name() const override { return name_; }
  void run(const Operation& operation, Deadline deadline) override;
  bool advance(Transfer& transfer) override { return point_to_point_.advance(transfer); }
  void wait_for(std::span<Transfer* const> transfers, Deadline deadline) override {
    point_to_point_.wait_for(transfers, deadline);
  }
  void wake() override { point_to_point_.wake(); }
  std::unique_ptr<Backend> split(std::span<const int> members, uint64_t group, Deadline deadline) override;
  Memory allocate(size_t bytes) override;
  Counters counters() const override;

 private:
  void carry_out(const Operation& operation, Deadline deadline);
  Algorithm choose(const Operation& operation, const plan::CollectiveRequest& request, Deadline deadline);
  const tcp::Program& program_for(const plan::CollectiveRequest& request, size_t element_bytes);

  const std::string name_ = "tcp";
  const TcpSetup setup_;
  tcp::Counts counts_;
  tcp::Links links_;
  tcp::Executor executor_;
  tcp::PointToPoint point_to_point_;
  plan::LinkCost cost_;
  bool cost_known_;
  using Key = std::tuple<Collective, Algorithm, int, int64_t, size_t, std::vector<int64_t>>;
  std::map<Key, tcp::Program> programs_;
  std::vector<std::byte> spare_, shares_;
  std::string broken_;
};

void TcpBackend::run(const Operation& operation, Deadline deadline) {
  if (!broken_.empty()) throw CommError("{}", broken_);
  try {
    carry_out(operation, deadline);
  } catch (const ConfigError&) {
    throw;  // thrown before anything was sent
  } catch (const std::exception& error) {
    // Queued frames refer to the caller's memory, and the peers are no longer in step.
    broken_ = error.what();
    links_.close();
    throw;
  }
}

void TcpBackend::carry_out(const Operation& asked, Deadline deadline) {
  ++counts_.operations;
  plan::CollectiveRequest request = tcp::request_of(asked, setup_.rank, setup_.size);
  request.algorithm = choose(asked, request, deadline);
  counts_.algorithm = static_cast<int>(request.algorithm);
  if (request.algorithm == Algorithm::kSummation) {
    request.spares = setup_.spares;
    request.piece =
        std::max<int64_t>(1, setup_.part_bytes / static_cast<int64_t>(size_of(asked.descriptor.type)));
  }
  std::optional<Operation> shares;
  if (overflows_as_sum(asked) && !all_meet(request.algorithm))
    shares = sum_of_shares(asked, setup_.size, shares_);
  const Operation& operation = shares ? *shares : asked;
  const tcp::Program& program = program_for(request, size_of(operation.descriptor.type));
  tcp::Places places(operation, request, program, spare_);
  executor_.run(program, places, operation, request.algorithm, deadline);
  if (operation.reduce == ReduceOp::kMean && program.divides_at_end) {
    plan::Range result = places.result();
    kernels::divide(places.at(result), static_cast<size_t>(result.count), operation.descriptor.type,
                    setup_.size);
  }
  places.finish();
}

Algorithm TcpBackend::choose(const Operation& operation, const plan::CollectiveRequest& request,
                             Deadline deadline) {
  if (operation.algorithm) return *operation.algorithm;
  const bool once = reduces(request.op) && rounds(operation);  // one rounding: all contributions must meet
  if (once && request.op != Collective::kAllReduce) return Algorithm::kDirect;
  if (request.op == Collective::kReduceScatter && setup_.size <= kDirectRanks) return Algorithm::kDirect;
  if (!cost_known_) {
    cost_ = measure_cost(links_, operation, executor_.next_sequence(), deadline);
    cost_known_ = true;
  }
  int64_t bytes = request.count * static_cast<int64_t>(size_of(operation.descriptor.type));
  Algorithm best = plan::choose_algorithm(request.op, setup_.size, bytes, cost_);
  return once && !all_meet(best) ? Algorithm::kDirect : best;
}

const tcp::Program& TcpBackend::program_for(const plan::CollectiveRequest& request, size_t element_bytes) {
  Key key{request.op, request.algorithm, request.root, request.count, element_bytes, request.parts};
  auto found = programs_.find(key);
  if (found != programs_.end()) return found->second;
  if (programs_.size() >= kMostPrograms) programs_.clear();
  return programs_
      .emplace(std::move(key), tcp::compile(request, plan::collective_steps(request), element_bytes))
      .first->second;
}

std::unique_ptr<Backend> TcpBackend::split(std::span<const int> members, uint64_t group, Deadline) {
  TcpSetup setup = setup_;
  setup.group = group;
  setup.size = static_cast<int>(members.size());
  setup.cost = cost_;
  setup.measures_cost = !cost_known_;
  setup.spares = 0;
  setup.members.clear();
  for (int member : members) {
    if (member == setup_.rank) setup.rank = static_cast<int>(setup.members.size());
    setup.members.push_back(setup_.members[static_cast<size_t>(member)]);
  }
  return make_tcp_backend(setup);
}

Memory TcpBackend::allocate(size_t bytes) {
  size_t whole = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, whole);
  if (!data) throw std::bad_alloc();
  return {std::shared_ptr<void>(data, std::free), bytes};
}

Counters TcpBackend::counters() const {
  Counters now{counts_.operations, counts_.bytes_sent, counts_.bytes_received, counts_.messages_sent};
  if (int algorithm = counts_.algorithm; algorithm >= 0) now.algorithm = static_cast<Algorithm>(algorithm);
  return now;
}

}  // namespace

std::unique_ptr<Backend> make_tcp_backend(const TcpSetup& setup) {
  YOKE_CHECK(setup.members.size() == static_cast<size_t>(setup.size), "{} members for {} ranks",
             setup.members.size(), setup.size);
  YOKE_CHECK(setup.rank >= 0 && setup.rank < setup.size, "rank {} of {}", setup.rank, setup.size);
  YOKE_CHECK(setup.lanes >= 1 && setup.lanes <= 8, "{} lanes", setup.lanes);
  return std::make_unique<TcpBackend>(setup);
}

}  // namespace yoke::comm
