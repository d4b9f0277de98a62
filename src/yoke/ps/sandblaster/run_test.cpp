// Workers, servers and the coordinator together, as threads over shared memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "yoke/ps/connect.h"
#include "yoke/ps/sandblaster/sandblaster_client.h"
#include "yoke/ps/server.h"

namespace yoke::ps::sandblaster {
namespace {

using kernels::LbfgsVector;
using Values = std::vector<double>;

constexpr int64_t kSamples = 60;

// The part of samples [first, last) in the mean of (w[k] s - t)^4 / 4 + (w[k] s - t)^2 / 2 over samples,
// where k is the sample's element, and every element has the same samples.
double loss_of(const Values& w, int64_t first, int64_t last, Values& gradient) {
  std::fill(gradient.begin(), gradient.end(), 0);
  double sum = 0;
  for (int64_t i = first; i < last; ++i) {
    const double s = 1 + 0.1 * static_cast<double>(i % 7), t = std::sin(static_cast<double>(i));
    for (size_t k = 0; k < w.size(); ++k) {
      const double gap = w[k] * s - t - 0.01 * static_cast<double>(k % 5);
      sum += gap * gap * (0.5 + 0.25 * gap * gap);
      gradient[k] += s * gap * (1 + gap * gap) / kSamples;
    }
  }
  return sum / kSamples;
}

// The same in one process.
class OneProcess final : public kernels::LbfgsVectors {
 public:
  OneProcess(const kernels::LbfgsOptions& options, size_t elements)
      : vectors_(static_cast<size_t>(LbfgsVector::count(options)), Values(elements)) {
    at(LbfgsVector::kParameters).assign(elements, 3.0);
  }
  double dot(int64_t a, int64_t b) override {
    double sum = 0;
    for (size_t i = 0; i < at(a).size(); ++i) sum += at(a)[i] * at(b)[i];
    return sum;
  }
  double max_abs(int64_t a) override {
    double most = 0;
    for (double one : at(a)) most = std::max(most, std::abs(one));
    return most;
  }
  double sum_abs(int64_t a) override {
    double sum = 0;
    for (double one : at(a)) sum += std::abs(one);
    return sum;
  }
  void scale(int64_t to, double factor, int64_t from) override {
    for (size_t i = 0; i < at(to).size(); ++i) at(to)[i] = factor * at(from)[i];
  }
  void add(int64_t to, double factor, int64_t from) override {
    for (size_t i = 0; i < at(to).size(); ++i) at(to)[i] += factor * at(from)[i];
  }
  double evaluate() override {
    ++evaluations;
    return loss_of(at(LbfgsVector::kParameters), 0, kSamples, at(LbfgsVector::kGradient));
  }
  Values& at(int64_t number) { return vectors_[static_cast<size_t>(number)]; }
  int64_t evaluations = 0;

 private:
  std::vector<Values> vectors_;
};

struct Job {
  kernels::LbfgsOptions lbfgs{.history = 4, .inner_steps = 6};
  int workers = 2;
  int servers = 1;
  int64_t elements = 300;
  int64_t steps = 3;
  double timeout = 20;
  PortionOptions portions{};
  // Called by a worker before it computes a portion; may throw to end it.
  std::function<void(int worker, int64_t portion)> before{};
  std::function<void()> after{};  // called by the first worker after its last step
  // Filled by run():
  Values end{};
  double loss = 0;  // where the last step started
  nlohmann::json counts{};

  void run() {
    std::vector<std::unique_ptr<Server>> shops;
    LocalGroup group(workers + servers);
    for (int s = 0; s < servers; ++s) {
      ServerOptions options;
      options.workers = workers;
      options.servers = servers;
      options.make_updater = make_adder();
      options.sandblaster = SandblasterOptions{lbfgs, portions, timeout};
      shops.push_back(std::make_unique<Server>(group.messenger(workers + s), std::move(options)));
    }
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; ++w)
      threads.emplace_back([&, w] {
        try {
          work(group, w);
        } catch (const std::exception& error) {
          if (w == 0) ADD_FAILURE() << error.what();
          group.close(w);
        }
      });
    for (auto& thread : threads) thread.join();
    for (auto& shop : shops) shop->run();
  }

  void work(LocalGroup& group, int worker) {
    SandblasterClient client(
        group.messenger(worker),
        {workers, servers, {elements / 3, elements - elements / 3}, DataType::kFloat64, 256, timeout});
    Values w(static_cast<size_t>(elements), 3.0), gradient(w.size());
    if (worker == 0) client.assign(LbfgsVector::kParameters, w.data());
    Work how{w.data(), gradient.data(), {}, [&](int64_t first, int64_t last) {
               if (before) before(worker, first);
               return loss_of(w, first, last, gradient);
             }};
    for (int64_t step = 1; step <= steps; ++step) {
      const AskReply start = client.take_part({.step = step, .phase = kFirst, .samples = kSamples}, how);
      if (worker == 0) loss = start.loss;
      client.take_part({.step = step, .phase = kRest, .samples = kSamples, .lr = 0.8}, how);
    }
    if (worker != 0) return;
    if (after) after();
    client.await_end();
    client.pull(LbfgsVector::kParameters, w.data());
    end = w;
    counts = nlohmann::json::parse(client.count());
  }
};

double largest_gap(const Values& a, const Values& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return a.size() == b.size() ? most : 1e300;
}

Values in_one_process(const Job& job, int64_t& evaluations) {
  OneProcess reference(job.lbfgs, static_cast<size_t>(job.elements));
  kernels::LbfgsNumbers numbers{.inverse_curvature = Values(static_cast<size_t>(job.lbfgs.history))};
  kernels::Lbfgs lbfgs(job.lbfgs, reference, numbers);
  for (int64_t step = 0; step < job.steps; ++step) lbfgs.step(0.8, reference.evaluate());
  evaluations = reference.evaluations;
  return reference.at(LbfgsVector::kParameters);
}

TEST(Sandblaster, EqualsOneProcessForAnyNumberOfShards) {
  for (bool strong_wolfe : {false, true}) {
    for (int servers : {1, 2, 7}) {
      Job job;
      job.servers = servers;
      job.lbfgs.strong_wolfe = strong_wolfe;
      job.run();
      int64_t evaluations = 0;
      const Values expected = in_one_process(job, evaluations);
      EXPECT_LT(largest_gap(job.end, expected), 1e-10) << servers << " servers";
      EXPECT_EQ(job.counts["evaluations"], evaluations);
    }
  }
}

TEST(Sandblaster, OnlyNumbersCrossTheCoordinator) {
  std::vector<int64_t> bytes, commands;
  for (int64_t elements : {300, 3000}) {
    Job job;
    job.workers = 1;
    job.servers = 3;
    job.elements = elements;
    job.steps = 2;
    job.lbfgs.inner_steps = 3;  // far from the minimum: both models take all of them
    job.run();
    bytes.push_back(job.counts["coordinator_bytes"]);
    commands.push_back(job.counts["commands"]);
  }
  EXPECT_EQ(commands[0], commands[1]);
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(Sandblaster, ARunHasTheSameBitsWhoeverComputesWhat) {
  std::vector<Values> ends;
  for (int slow : {0, 1, 2}) {
    Job job;
    job.workers = 3;
    job.servers = 2;
    job.before = [slow](int worker, int64_t) {
      if (worker == slow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    job.run();
    ends.push_back(job.end);
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_EQ(ends[0], ends[2]);
}

TEST(Sandblaster, TheNumberOfPortionsIsThatOfTheOptionsOrOfTheSamples) {
  for (const auto& [wanted, expected] : {std::pair<int64_t, int64_t>(5, 5), {0, 16}, {1000, kSamples}}) {
    Job job;
    job.steps = 1;
    job.portions = {.portions = wanted, .backups = false};
    job.run();
    EXPECT_EQ(job.counts["portions"], expected * job.counts["evaluations"].get<int64_t>()) << wanted;
    EXPECT_EQ(job.counts["copies"], 0);
  }
}

TEST(Sandblaster, GoesOnWithoutAWorkerThatDiesWithAPortion) {
  Job job;
  job.workers = 3;
  job.servers = 2;
  std::atomic<int> computed = 0;
  job.before = [&](int worker, int64_t) {
    if (worker == 2 && ++computed == 5) throw CommError("it fell");
  };
  job.run();
  int64_t evaluations = 0;
  EXPECT_LT(largest_gap(job.end, in_one_process(job, evaluations)), 1e-10);
  EXPECT_EQ(job.counts["evaluations"], evaluations);
}

TEST(Sandblaster, AStuckWorkerHoldsNobodyUp) {
  Job job;
  job.workers = 3;
  std::promise<void> ended;
  std::shared_future<void> end = ended.get_future();
  job.before = [end](int worker, int64_t) {
    if (worker == 2) end.wait_for(std::chrono::seconds(60));
  };
  job.after = [&] { ended.set_value(); };
  job.run();
  int64_t evaluations = 0;
  EXPECT_LT(largest_gap(job.end, in_one_process(job, evaluations)), 1e-10);
  EXPECT_GE(job.counts["copies"].get<int64_t>() + job.counts["wasted"].get<int64_t>(), 1);
}

TEST(Sandblaster, AStopSignalOfAnyWorkerEndsTheRunAfterAStep) {
  Job job;
  job.workers = 1;
  std::unique_ptr<Server> server;
  LocalGroup group(2);  // goes first: its threads call the server
  ServerOptions options;
  options.make_updater = make_adder();
  options.sandblaster = SandblasterOptions{job.lbfgs, {}, job.timeout};
  server = std::make_unique<Server>(group.messenger(1), options);
  Values w(5, 3.0), gradient(5);
  Work how{w.data(), gradient.data(), {}, [&](int64_t first, int64_t last) {
             return loss_of(w, first, last, gradient);
           }};
  {
    SandblasterClient client(group.messenger(0), {1, 1, {5}, DataType::kFloat64, 256, job.timeout});
    client.assign(LbfgsVector::kParameters, w.data());
    EXPECT_EQ(client.take_part({.step = 1, .phase = kFirst, .signal = 15, .samples = kSamples}, how).over, 0);
    const AskReply last = client.take_part({.step = 1, .phase = kRest, .samples = kSamples, .lr = 1}, how);
    EXPECT_EQ(last.over, 1);
    EXPECT_EQ(last.signal, 15);
  }
  server->run();
}

TEST(Sandblaster, AHistoryOfACheckpointGoesOnBitForBit) {
  Values straight, parts;
  for (bool restart : {false, true}) {
    kernels::LbfgsNumbers numbers;
    std::vector<Values> saved;
    Values w(9, 3.0), gradient(9);
    const kernels::LbfgsOptions lbfgs{.history = 3, .inner_steps = 3};
    for (int64_t part = 0; part < (restart ? 2 : 1); ++part) {
      std::vector<std::unique_ptr<Server>> servers;
      LocalGroup group(3);  // goes first: its threads call the servers
      for (int s = 0; s < 2; ++s) {
        ServerOptions options;
        options.servers = 2;
        options.make_updater = make_adder();
        options.sandblaster = SandblasterOptions{lbfgs, {}, 20};
        servers.push_back(std::make_unique<Server>(group.messenger(1 + s), options));
      }
      Work how{w.data(), gradient.data(), {}, [&](int64_t first, int64_t last) {
                 return loss_of(w, first, last, gradient);
               }};
      {
        SandblasterClient client(group.messenger(0), {1, 2, {9}, DataType::kFloat64, 24, 20});
        client.assign(LbfgsVector::kParameters, w.data());
        for (size_t v = 0; v < saved.size(); ++v) client.assign(static_cast<int64_t>(v), saved[v].data());
        if (!saved.empty()) client.assign(numbers);
        for (int64_t step = 1 + 2 * part; step <= (restart ? 2 + 2 * part : 4); ++step) {
          client.take_part({.step = step, .phase = kFirst, .samples = kSamples}, how);
          client.take_part({.step = step, .phase = kRest, .samples = kSamples, .lr = 0.5}, how);
        }
        numbers = client.fetch_numbers(lbfgs.history);
        saved.assign(static_cast<size_t>(LbfgsVector::count(lbfgs)), Values(9));
        for (size_t v = 0; v < saved.size(); ++v) client.pull(static_cast<int64_t>(v), saved[v].data());
        EXPECT_THROW(client.assign(kernels::LbfgsNumbers{}), CommError) << "of another history";
      }
      for (auto& server : servers) server->run();
    }
    (restart ? parts : straight) = saved[LbfgsVector::kParameters];
  }
  EXPECT_EQ(straight, parts);
}

TEST(Sandblaster, AServerThatDoesNotRunItRefuses) {
  std::unique_ptr<Server> server;
  LocalGroup group(2);  // goes first: its threads call the server
  ServerOptions options;
  options.make_updater = make_adder();
  server = std::make_unique<Server>(group.messenger(1), options);
  EXPECT_THROW(SandblasterClient(group.messenger(0), {1, 1, {5}, DataType::kFloat64, 256, 5}), CommError);
}

}  // namespace
}  // namespace yoke::ps::sandblaster
