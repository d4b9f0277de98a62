#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/plan/collectives/phases.h"

namespace yoke::plan {
namespace {

struct FormEntry {
  Collective op;
  Algorithm algorithm;
  Form form;
};

constexpr FormEntry kForms[] = {
    {Collective::kAllReduce, Algorithm::kRing, ring_all_reduce_form},
    {Collective::kAllReduce, Algorithm::kTree, tree_all_reduce_form},
    {Collective::kAllReduce, Algorithm::kHalvingDoubling, halving_all_reduce_form},
    {Collective::kAllReduce, Algorithm::kStar, star_all_reduce_form},
    {Collective::kAllReduce, Algorithm::kDirect, direct_all_reduce_form},
    {Collective::kAllReduce, Algorithm::kHierarchical, hierarchical_all_reduce_form},
    {Collective::kAllReduce, Algorithm::kExchange, exchange_all_reduce_form},
    {Collective::kAllReduce, Algorithm::kSummation, summation_all_reduce_form},

    {Collective::kReduce, Algorithm::kRing, ring_reduce_form},
    {Collective::kReduce, Algorithm::kTree, tree_reduce_form},
    {Collective::kReduce, Algorithm::kHalvingDoubling, halving_reduce_form},
    {Collective::kReduce, Algorithm::kStar, star_reduce_form},
    {Collective::kReduce, Algorithm::kDirect, direct_reduce_form},
    {Collective::kReduce, Algorithm::kHierarchical, hierarchical_reduce_form},

    {Collective::kReduceScatter, Algorithm::kRing, ring_reduce_scatter_form},
    {Collective::kReduceScatter, Algorithm::kHalvingDoubling, halving_reduce_scatter_form},
    {Collective::kReduceScatter, Algorithm::kStar, star_reduce_scatter_form},
    {Collective::kReduceScatter, Algorithm::kDirect, direct_reduce_scatter_form},
    {Collective::kReduceScatter, Algorithm::kHierarchical, hierarchical_reduce_scatter_form},

    {Collective::kAllGather, Algorithm::kRing, ring_all_gather_form},
    {Collective::kAllGather, Algorithm::kHalvingDoubling, halving_all_gather_form},
    {Collective::kAllGather, Algorithm::kStar, star_all_gather_form},
    {Collective::kAllGather, Algorithm::kDirect, direct_all_gather_form},
    {Collective::kAllGather, Algorithm::kHierarchical, hierarchical_all_gather_form},

    {Collective::kAllToAll, Algorithm::kDirect, direct_all_to_all_form},

    {Collective::kBroadcast, Algorithm::kRing, ring_broadcast_form},
    {Collective::kBroadcast, Algorithm::kTree, tree_broadcast_form},
    {Collective::kBroadcast, Algorithm::kHalvingDoubling, halving_broadcast_form},
    {Collective::kBroadcast, Algorithm::kStar, star_broadcast_form},
    {Collective::kBroadcast, Algorithm::kDirect, direct_broadcast_form},
    {Collective::kBroadcast, Algorithm::kHierarchical, hierarchical_broadcast_form},

    {Collective::kGather, Algorithm::kHalvingDoubling, halving_gather_form},
    {Collective::kGather, Algorithm::kStar, star_gather_form},
    {Collective::kGather, Algorithm::kDirect, direct_gather_form},
    {Collective::kGather, Algorithm::kHierarchical, hierarchical_gather_form},

    {Collective::kScatter, Algorithm::kHalvingDoubling, halving_scatter_form},
    {Collective::kScatter, Algorithm::kStar, star_scatter_form},
    {Collective::kScatter, Algorithm::kDirect, direct_scatter_form},
    {Collective::kScatter, Algorithm::kHierarchical, hierarchical_scatter_form},

    {Collective::kBarrier, Algorithm::kTree, tree_barrier_form},
    {Collective::kBarrier, Algorithm::kHalvingDoubling, halving_barrier_form},
    {Collective::kBarrier, Algorithm::kStar, star_barrier_form},
    {Collective::kBarrier, Algorithm::kDirect, direct_barrier_form},
    {Collective::kBarrier, Algorithm::kHierarchical, hierarchical_barrier_form},
};

Form find_form(Collective op, Algorithm algorithm) {
  for (const FormEntry& entry : kForms) {
    if (entry.op == op && entry.algorithm == algorithm) return entry.form;
  }
  std::vector<std::string> names;
  for (Algorithm accepted : algorithms_for(op)) names.emplace_back(to_string(accepted));
  throw ConfigError("{} has no {} form. Accepted: {}.", to_string(op), to_string(algorithm),
                    join(names, " "));
}

bool has_root(Collective op) {
  return op == Collective::kReduce || op == Collective::kBroadcast || op == Collective::kGather ||
         op == Collective::kScatter;
}

bool has_parts(Collective op) {
  return op == Collective::kAllGather || op == Collective::kReduceScatter || op == Collective::kGather ||
         op == Collective::kScatter;
}

void check_ranks(const CollectiveRequest& request) {
  const char* op = to_string(request.op);
  if (request.size < 1) throw ConfigError("{} among {} ranks: there must be at least one.", op, request.size);
  if (request.rank < 0 || request.rank >= request.size)
    throw ConfigError("{}: rank {} of {}. Accepted: 0..{}.", op, request.rank, request.size,
                      request.size - 1);
  if (has_root(request.op) && (request.root < 0 || request.root >= request.size))
    throw ConfigError("{}: root {} among {} ranks. Accepted: 0..{}.", op, request.root, request.size,
                      request.size - 1);
  if (request.algorithm == Algorithm::kHierarchical &&
      (request.machine_size < 1 || request.size % request.machine_size != 0))
    throw ConfigError("{} by hierarchy: {} ranks on machines of {}. Every machine must have the same number.",
                      op, request.size, request.machine_size);
}

void check_spares(const CollectiveRequest& request) {
  if (request.spares == 0) return;
  if (request.algorithm != Algorithm::kSummation)
    throw ConfigError("{} by {}: it has no ranks that only sum.", to_string(request.op),
                      to_string(request.algorithm));
  if (request.spares < 0 || request.spares >= request.size)
    throw ConfigError("{}: {} ranks of {} only sum. Accepted: 0..{}.", to_string(request.op), request.spares,
                      request.size, request.size - 1);
}

void check_parts(const CollectiveRequest& request) {
  const char* op = to_string(request.op);
  if (request.parts.empty()) return;
  if (!has_parts(request.op)) throw ConfigError("{} has no parts to give sizes for.", op);
  if (request.parts.size() != static_cast<size_t>(request.size))
    throw ConfigError("{}: {} parts for {} ranks.", op, request.parts.size(), request.size);
  int64_t rest = request.count;
  for (int64_t part : request.parts) {
    if (part < 0 || part > rest)
      throw ConfigError("{}: a part of {} elements where {} of {} are left.", op, part, rest, request.count);
    rest -= part;
  }
  if (rest != 0) throw ConfigError("{}: {} of {} elements belong to no part.", op, rest, request.count);
}

void check_counts(const CollectiveRequest& request) {
  const char* op = to_string(request.op);
  if (request.count < 0) throw ConfigError("{} of {} elements.", op, request.count);
  if (request.piece < 1) throw ConfigError("{} in chunks of {} elements.", op, request.piece);
  if (request.op == Collective::kBarrier && request.count != 0)
    throw ConfigError("barrier of {} elements: a barrier has no data.", request.count);
  if (request.op == Collective::kAllToAll && request.count % (2 * int64_t{request.size}) != 0)
    throw ConfigError("all_to_all: {} elements are not 2 x {} equal parts.", request.count, request.size);
  check_parts(request);
}

}  // namespace

std::vector<Step> collective_steps(const CollectiveRequest& request) {
  Form form = find_form(request.op, request.algorithm);
  check_ranks(request);
  check_spares(request);
  check_counts(request);
  StepWriter out;
  form(request, out);
  return std::move(out).in_order();
}

std::vector<Algorithm> algorithms_for(Collective op) {
  std::vector<Algorithm> algorithms;
  for (const FormEntry& entry : kForms) {
    if (entry.op == op) algorithms.push_back(entry.algorithm);
  }
  return algorithms;
}

}  // namespace yoke::plan
