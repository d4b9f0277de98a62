#include "yoke/cluster/link_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/net/address.h"

namespace yoke::cluster {
namespace {

// Seconds of each attempt: every one sends a new SYN, earlier than the kernel would.
constexpr double kAttempts[] = {0.25, 0.5, 0.75};
constexpr size_t kMostForAll = 16;  // machines, of which all subsets are tried
constexpr size_t kShown = 4;

// Machines at cut links, their ranks, and which of them are cut off from which.
struct Cuts {
  std::vector<std::vector<int>> ranks;
  std::set<std::pair<size_t, size_t>> links;

  Cuts(const std::vector<Member>& members, const std::vector<CutLink>& cut) {
    std::map<std::string, size_t> index;
    auto machine_of = [&](int rank) {
      const std::string& name = members.at(static_cast<size_t>(rank)).machine;
      auto [at, is_new] = index.try_emplace(name, ranks.size());
      if (is_new) {
        ranks.emplace_back();
        for (const Member& one : members)
          if (one.machine == name) ranks.back().push_back(one.rank);
      }
      return at->second;
    };
    for (const auto& [a, b] : cut) {
      const size_t first = machine_of(a), second = machine_of(b);
      if (first != second) links.emplace(std::min(first, second), std::max(first, second));
    }
  }

  // In descending order, which is how choices are compared.
  std::vector<int> ranks_in(const std::vector<bool>& chosen) const {
    std::vector<int> all;
    for (size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i]) all.insert(all.end(), ranks[i].begin(), ranks[i].end());
    std::sort(all.rbegin(), all.rend());
    return all;
  }

  std::vector<int> fewest() const {
    std::vector<int> best;
    bool any = false;
    for (uint32_t set = 0; set < (uint32_t{1} << ranks.size()); ++set) {
      std::vector<bool> chosen(ranks.size());
      for (size_t i = 0; i < ranks.size(); ++i) chosen[i] = (set >> i & 1) != 0;
      if (!std::ranges::all_of(links,
                               [&](const auto& one) { return chosen[one.first] || chosen[one.second]; }))
        continue;
      std::vector<int> leaving = ranks_in(chosen);
      const bool better =
          !any || leaving.size() < best.size() || (leaving.size() == best.size() && leaving > best);
      if (better) best = std::move(leaving);
      any = true;
    }
    return best;
  }

  std::vector<int> greedy() const {
    auto left = links;
    std::vector<bool> chosen(ranks.size());
    while (!left.empty()) {
      std::map<size_t, size_t> degree;
      for (const auto& [a, b] : left) ++degree[a], ++degree[b];
      auto worst = std::ranges::max_element(degree, [&](const auto& a, const auto& b) {
        return std::pair(a.second, ranks[a.first].back()) < std::pair(b.second, ranks[b.first].back());
      });
      chosen[worst->first] = true;
      std::erase_if(left, [&](const auto& one) { return chosen[one.first] || chosen[one.second]; });
    }
    return ranks_in(chosen);
  }
};

}  // namespace

bool answers(const std::string& address, double seconds) {
  try {
    net::connect_to(net::parse_address(address), Deadline::after(seconds));
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<int> silent_ranks(const std::vector<Member>& members, int rank) {
  std::set<std::string> seen;
  std::vector<const Member*> called;
  bool calls = false;
  for (const Member& member : members) {
    const bool first = seen.insert(member.machine).second;
    if (first && calls) called.push_back(&member);
    if (member.rank == rank) calls = first;
    if (member.rank == rank && !first) return {};
  }
  std::vector<char> answered(called.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < called.size(); ++i)
    threads.emplace_back([&, i] {
      answered[i] = std::ranges::any_of(kAttempts,
                                        [&](double seconds) { return answers(called[i]->address, seconds); });
    });
  threads.clear();
  std::vector<int> silent;
  for (size_t i = 0; i < called.size(); ++i)
    if (!answered[i]) silent.push_back(called[i]->rank);
  return silent;
}

std::vector<int> who_leaves(const std::vector<Member>& members, const std::vector<CutLink>& cut) {
  const Cuts cuts(members, cut);
  std::vector<int> leaving = cuts.ranks.size() <= kMostForAll ? cuts.fewest() : cuts.greedy();
  std::reverse(leaving.begin(), leaving.end());
  return leaving;
}

std::string describe(const std::vector<Member>& members, const std::vector<CutLink>& cut) {
  auto name = [&](int rank) {
    const Member& member = members.at(static_cast<size_t>(rank));
    return fmt::format("rank {} on {} ({})", rank, member.host, member.address);
  };
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(cut.size(), kShown); ++i)
    parts.push_back(
        fmt::format("{} and {} cannot reach each other", name(cut[i].first), name(cut[i].second)));
  if (cut.size() > kShown) parts.push_back(fmt::format("and {} more pairs", cut.size() - kShown));
  return join(parts, "; ");
}

}  // namespace yoke::cluster
