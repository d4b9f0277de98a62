// Rules that must decide alike, and what every rule must keep to, under gradients in random order.
#include <gtest/gtest.h>

#include <set>

#include "yoke/base/random.h"
#include "yoke/plan/policies/test_table.h"

namespace yoke::plan {
namespace {

// Both get the same gradients in the same, random order, and must decide alike.
void expect_equal(const PolicyOptions& a, const PolicyOptions& b, int events = 2000) {
  Table left(a), right(b);
  Random random(7);
  for (int i = 0; i < events; ++i) {
    auto at = left.running.begin();
    std::advance(at, static_cast<int>(random.below(left.running.size())));
    int worker = at->first;
    Decision first = left.push(worker);
    ASSERT_EQ(first, right.push(worker))
        << to_string(a.rule) << " and " << to_string(b.rule) << " at event " << i;
  }
}

TEST(Policy, DegenerateCasesAreIdentities) {
  constexpr int64_t kUnbounded = PolicyOptions::kUnbounded;
  for (int workers : {1, 2, 5, 8}) {
    PolicyOptions sync = options_of(Rule::kSync, workers), async = options_of(Rule::kAsync, workers);
    expect_equal(options_of(Rule::kKSync, workers, workers), sync);
    expect_equal(options_of(Rule::kKAsync, workers, 1), async);
    expect_equal(options_of(Rule::kKBatchAsync, workers, 1), async);
    expect_equal(options_of(Rule::kBoundedDelay, workers, 0, kUnbounded), async);
    expect_equal(options_of(Rule::kSsp, workers, 0, kUnbounded), async);
  }
}

// What a worker sees of a decision: k_async lists its releases in the order of the pushes, sync in that of
// the workers; bounded_delay counts an update for each gradient where sync counts one for all.
struct Seen {
  std::set<int> released;
  double weight = 0;  // of all gradients since the last release of everybody
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> rounds(const PolicyOptions& options, int events) {
  Table table(options);
  Random random(9);
  std::vector<Seen> all;
  double weight = 0;
  for (int i = 0; i < events; ++i) {
    auto at = table.running.begin();
    std::advance(at, static_cast<int>(random.below(table.running.size())));
    const Decision& decision = table.push(at->first);
    if (decision.update) weight += decision.update->weight * static_cast<double>(decision.update->gradients);
    std::vector<int> list = released(decision);
    all.push_back({{list.begin(), list.end()}, list.empty() ? 0 : weight});
    if (!list.empty()) weight = 0;
  }
  return all;
}

TEST(Policy, KAsyncOfAllAndNoDelayAreSynchronous) {
  for (int workers : {1, 2, 4, 8}) {
    std::vector<Seen> sync = rounds(options_of(Rule::kSync, workers), 1000);
    EXPECT_EQ(rounds(options_of(Rule::kKAsync, workers, workers), 1000), sync);
    EXPECT_EQ(rounds(options_of(Rule::kBoundedDelay, workers, 0, 0), 1000), sync);
  }
  EXPECT_NE(rounds(options_of(Rule::kKBatchAsync, 4, 4), 1000), rounds(options_of(Rule::kSync, 4), 1000));
}

// Workers come, go, resend and are late in any order.
TEST(Policy, NeverStopsCountsTwiceOrAppliesTheCancelled) {
  for (const std::string& name : rule_names()) {
    Rule rule = parse_rule(name);
    Table table(options_of(rule, 4, 3, 2));
    Random random(derive_seed(3, static_cast<uint64_t>(rule)));
    std::vector<GradientTags> sent;
    std::set<int64_t> minibatches;
    std::set<int> members = {0, 1, 2, 3};
    int64_t accepted = 0, applied = 0;
    auto check = [&](const Decision& decision) {
      if (decision.verdict == Verdict::kAccepted) ++accepted;
      if (decision.update) applied += decision.update->gradients;
      ASSERT_TRUE(decision.staleness == 0 || !traits_of(rule).cancels) << name;
      for (const Release& release : decision.releases)
        ASSERT_TRUE(minibatches.insert(release.minibatch).second);
      ASSERT_EQ(accepted, applied + table.policy.accumulated()) << name;
      ASSERT_EQ(table.policy.alive(), static_cast<int>(members.size()));
      ASSERT_TRUE(members.empty() || table.policy.computing() > 0) << name << ": everybody waits";
      ASSERT_EQ(table.policy.computing(), static_cast<int>(table.running.size()));
    };
    for (int i = 0; i < 5000; ++i) {
      uint64_t dice = random.below(20);
      int someone = static_cast<int>(random.below(6));
      if (dice == 0) {
        members.insert(someone);
        table.running.erase(someone);
        check(table.join(someone));
      } else if (dice == 1) {
        members.erase(someone);
        check(table.leave(someone));
      } else if (dice == 2 && !sent.empty()) {
        const Decision& again = table.policy.arrived(sent[random.below(sent.size())]);
        ASSERT_NE(again.verdict, Verdict::kAccepted);
        check(again);
      } else if (!table.running.empty()) {
        auto at = table.running.begin();
        std::advance(at, static_cast<int>(random.below(table.running.size())));
        sent.push_back(at->second);
        check(table.push(at->first));
      }
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(applied, 1000);
  }
}

}  // namespace
}  // namespace yoke::plan
