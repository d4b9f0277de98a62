#include "yoke/parallel/sync/servers/sparse_rows.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/parallel/sync/servers/named_rows.h"

namespace yoke::parallel {
namespace {

using ps::sparse::Client;
using ps::sparse::Key;

std::span<const std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Whether these are the same memory. The loader gives what it has shown, and nobody writes to it.
bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

std::vector<Key> sorted_keys(const torch::Tensor& numbers) {
  const torch::Tensor host = numbers.to(torch::kCPU, torch::kInt64).contiguous();
  const auto* data = host.const_data_ptr<int64_t>();
  std::vector<Key> keys(data, data + host.numel());
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

// What may number rows of a parameter.
std::vector<torch::Tensor> numbers_of(const models::KeyedParameter& parameter,
                                      const std::vector<torch::Tensor>& inputs) {
  if (parameter.input >= 0) return {inputs.at(static_cast<size_t>(parameter.input))};
  std::vector<torch::Tensor> numbers;
  for (const torch::Tensor& input : inputs)
    if (c10::isIntegralType(input.scalar_type(), /*includeBool=*/false)) numbers.push_back(input);
  if (numbers.empty())
    throw ConfigError("a batch has no tensor of integers that names rows of '{}'. Set ps.sparse = \"off\".",
                      parameter.name);
  return numbers;
}

// The rows of a parameter that a batch uses. Where several tensors may name them, more: numbers of others
// that are rows here, too.
std::vector<Key> keys_of(const models::KeyedParameter& parameter, const std::vector<torch::Tensor>& inputs) {
  std::vector<torch::Tensor> numbers = numbers_of(parameter, inputs);
  for (torch::Tensor& one : numbers) one = one.flatten();
  std::vector<Key> keys = sorted_keys(numbers.size() == 1 ? numbers[0] : torch::cat(numbers));
  const auto rows = static_cast<Key>(parameter.tensor.size(0));
  const auto end = std::lower_bound(keys.begin(), keys.end(), rows);
  if (end != keys.end() && numbers.size() == 1)
    throw ConfigError("a batch uses row {} of '{}', which has {}.", static_cast<int64_t>(keys.back()),
                      parameter.name, rows);
  keys.erase(end, keys.end());
  return keys;
}

}  // namespace

SparseRows::SparseRows(std::vector<models::KeyedParameter> parameters, const PsSetup& setup,
                       ps::Learner& learner, DataType type)
    : type_(type == DataType::kFloat64 ? torch::kFloat64 : torch::kFloat32) {
  ps::sparse::ClientOptions options;
  options.workers = setup.workers;
  options.servers = setup.places > 0 ? setup.places : static_cast<int>(setup.ps.servers);
  options.view = learner.servers();
  options.replicas = static_cast<int>(setup.ps.replicas);
  options.tables.clear();
  if (setup.ps.kkt && setup.l1 <= 0)
    throw ConfigError(
        "ps.kkt = true: without train.optimizer = \"proximal\" and train.l1 above 0 no gradient leaves a "
        "weight of 0 where it is.");
  for (models::KeyedParameter& one : parameters) {
    options.tables.push_back({one.tensor.size(1), static_cast<Key>(one.tensor.size(0)), type});
    const uint64_t seed =
        static_cast<uint64_t>(setup.messenger->rank()) * ps::sparse::kMostTables + all_.size() + 1;
    ps::sparse::RowFilters filters(type, one.tensor.size(1));
    std::shared_ptr<std::vector<Key>> zeros;
    if (setup.ps.kkt) {
      zeros = std::make_shared<std::vector<Key>>();
      filters.add(ps::sparse::kkt_filter(
          {.l1 = setup.l1, .derivatives = one.tensor.size(1)},
          [zeros](Key key) { return std::binary_search(zeros->begin(), zeros->end(), key); }));
    }
    if (setup.ps.significant != 0) filters.add(ps::sparse::significance_filter(setup.ps.significant));
    if (setup.ps.random_skip != 0) filters.add(ps::sparse::random_skip_filter(setup.ps.random_skip, seed));
    all_.push_back({std::move(one), {}, {}, std::move(filters), std::move(zeros)});
  }
  options.key_cache = setup.ps.key_cache;
  options.fixed_point = setup.ps.fixed_point == "int8" ? 1 : setup.ps.fixed_point == "int16" ? 2 : 0;
  options.compress = setup.ps.compress;
  options.seed = static_cast<uint64_t>(setup.messenger->rank()) + 1;
  options.timeout = setup.timeout;
  options.late = [&learner] { learner.check_late(); };
  options.says_goodbye = false;  // the learner leaves
  options.ranks = setup.ranks;
  client_ = std::make_unique<Client>(*setup.messenger, std::move(options));
}

std::vector<torch::Tensor> SparseRows::tensors() const {
  std::vector<torch::Tensor> tensors;
  for (const One& one : all_) tensors.push_back(one.parameter.tensor);
  return tensors;
}

bool SparseRows::holds(const std::string& parameter) const {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const One& one) { return one.parameter.name == parameter; });
}

// The parameter and the optimizer's arrays of it ("sum/weight").
std::vector<std::pair<std::string, torch::Tensor>> SparseRows::arrays_of(const One& one,
                                                                         optim::Optimizer& optimizer) const {
  std::vector<std::pair<std::string, torch::Tensor>> arrays = {{one.parameter.name, one.parameter.tensor}};
  for (const auto& [name, tensor] : optimizer.state()) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos || name.rfind("master/", 0) == 0) continue;
    if (name.substr(slash + 1) == one.parameter.name) arrays.emplace_back(name, tensor);
  }
  return arrays;
}

void SparseRows::assign(optim::Optimizer& optimizer, int64_t version) {
  torch::NoGradGuard no_grad;
  for (size_t table = 0; table < all_.size(); ++table) {
    const auto arrays = arrays_of(all_[table], optimizer);
    const int64_t state = client_->state_arrays(static_cast<int>(table));
    if (static_cast<int64_t>(arrays.size()) != state + 1)
      throw ConfigError(
          "the servers' rule keeps {} arrays of '{}', the optimizer {}: set ps.sparse = \"off\".", state,
          all_[table].parameter.name, arrays.size() - 1);
    torch::Tensor used = torch::zeros({arrays[0].second.size(0)}, torch::kBool);
    for (const auto& [name, tensor] : arrays) used |= (tensor.detach() != 0).any(1).to(torch::kCPU);
    const std::vector<Key> keys = sorted_keys(used.nonzero().view({-1}));
    for (size_t array = 0; array < arrays.size(); ++array) {
      const torch::Tensor& tensor = arrays[array].second;
      torch::Tensor rows = tensor.detach().index_select(0, index_of(keys).to(tensor.device()));
      rows = rows.to(torch::kCPU, type_).contiguous();
      client_->assign(static_cast<int>(table), static_cast<int64_t>(array), keys, bytes_of(rows), version);
    }
  }
}

void SparseRows::begin_step() {
  for (One& one : all_) one.keys.clear();
}

void SparseRows::write(const torch::Tensor& into, const Client::Rows& rows) const {
  if (rows.keys.empty()) return;
  torch::NoGradGuard no_grad;
  torch::Tensor values = torch::from_blob(const_cast<std::byte*>(rows.values.data()),
                                          {static_cast<int64_t>(rows.keys.size()), into.size(1)}, type_);
  into.detach().index_copy_(0, index_of(rows.keys).to(into.device()),
                            values.to(into.device(), into.scalar_type()));
}

std::shared_ptr<SparseRows::Request> SparseRows::ask(int64_t version,
                                                     const std::vector<torch::Tensor>& inputs) {
  auto request = std::make_shared<Request>();
  request->version = version;
  request->inputs = inputs;
  request->rows.resize(all_.size());
  for (size_t table = 0; table < all_.size(); ++table) {
    Client::Rows& rows = request->rows[table];
    rows.keys = keys_of(all_[table].parameter, inputs);
    rows.values.resize(rows.keys.size() * static_cast<size_t>(width_of(all_[table])) *
                       c10::elementSize(type_));
    request->answers.push_back(client_->begin_pull_at(version, static_cast<int>(table), rows.keys,
                                                      rows.values, /*all_servers=*/false, request));
  }
  return request;
}

void SparseRows::pull_ahead(int64_t version, const std::vector<torch::Tensor>& inputs) {
  if (!ahead_.empty() && ahead_.back()->version >= version) return;
  ahead_.push_back(ask(version, inputs));
}

// What pull_ahead() has asked for, if it is this; older requests are dropped.
std::shared_ptr<SparseRows::Request> SparseRows::asked_before(int64_t version,
                                                              const std::vector<torch::Tensor>& inputs) {
  while (!ahead_.empty() && ahead_.front()->version < version) ahead_.pop_front();
  if (ahead_.empty() || ahead_.front()->version != version) return nullptr;
  const std::vector<torch::Tensor>& asked = ahead_.front()->inputs;
  if (!std::equal(asked.begin(), asked.end(), inputs.begin(), inputs.end(), is_same)) return nullptr;
  auto request = std::move(ahead_.front());
  ahead_.pop_front();
  ++pulled_ahead_;
  return request;
}

bool SparseRows::pull(int64_t version, const std::vector<torch::Tensor>& inputs) {
  bool exact = true;
  whole_ = false;
  std::shared_ptr<Request> request = asked_before(version, inputs);
  if (!request) request = ask(version, inputs);
  for (size_t table = 0; table < all_.size(); ++table) {
    One& one = all_[table];
    Client::Rows& rows = request->rows[table];
    const Client::Pulled pulled = client_->end_pull_at(request->answers[table]);
    exact &= pulled.newest == version && pulled.oldest == version;
    write(one.parameter.tensor, rows);
    if (one.keys.empty()) {
      one.keys = std::move(rows.keys);
      continue;
    }
    std::vector<Key> both;
    std::set_union(one.keys.begin(), one.keys.end(), rows.keys.begin(), rows.keys.end(),
                   std::back_inserter(both));
    one.keys = std::move(both);
  }
  return exact;
}

void SparseRows::pull_all(int64_t version) {
  if (std::exchange(whole_, true)) return;
  for (size_t table = 0; table < all_.size(); ++table)
    write(all_[table].parameter.tensor,
          client_->fetch(static_cast<int>(table), 0, Client::From::kNewest, version));
}

bool SparseRows::gather() {
  torch::NoGradGuard no_grad;
  bool finite = true;
  for (One& one : all_) {
    const torch::Tensor& gradient = one.parameter.tensor.grad();
    const int64_t rows = static_cast<int64_t>(one.keys.size());
    if (!gradient.defined()) {
      one.gradient = torch::zeros({rows, width_of(one)}, type_);
      continue;
    }
    if (gradient.is_sparse())
      gather_sparse(one, gradient);
    else
      gather_dense(one, gradient);
    finite &= torch::isfinite(one.gradient).all().item<bool>();
  }
  return finite;
}

void SparseRows::gather_sparse(One& one, const torch::Tensor& gradient) const {
  const torch::Tensor whole = gradient.coalesce();
  const std::vector<Key> places = places_of(one.parameter, whole.indices()[0], one.keys);
  one.gradient = torch::zeros({static_cast<int64_t>(one.keys.size()), width_of(one)}, type_);
  if (!places.empty()) one.gradient.index_copy_(0, index_of(places), whole.values().to(torch::kCPU, type_));
}

void SparseRows::gather_dense(One& one, const torch::Tensor& gradient) const {
  if (one.parameter.sparse_gradient)
    throw ConfigError(
        "the gradient of '{}' is dense, though its embedding has sparse gradients: another layer uses it, "
        "too (tied "
        "weights). Set ps.sparse = \"off\".",
        one.parameter.name);
  one.gradient = named_rows(one.parameter, gradient, one.keys).to(torch::kCPU, type_).contiguous();
}

void SparseRows::clear() {
  for (One& one : all_) one.gradient.zero_();
}

void SparseRows::find_zeros(One& one) const {
  torch::NoGradGuard no_grad;
  const torch::Tensor& values = one.parameter.tensor;
  const torch::Tensor keys = index_of(one.keys);
  const torch::Tensor zero =
      (values.detach().index_select(0, keys.to(values.device())) == 0).all(1).to(torch::kCPU);
  *one.zeros = sorted_keys(keys.masked_select(zero));
}

void SparseRows::push(int64_t minibatch, double scale, bool measure) {
  std::vector<Client::Part> parts;
  std::vector<ps::sparse::RowFilters::Rows> left(all_.size());
  for (size_t table = 0; table < all_.size(); ++table) {
    One& one = all_[table];
    Client::Part part{static_cast<int>(table), one.keys, bytes_of(one.gradient)};
    if (one.zeros) find_zeros(one);
    if (one.filters.active()) {
      left[table] = one.filters.apply(part.keys, part.values);
      part.keys = left[table].keys;
      part.values = left[table].values;
    }
    parts.push_back(part);
  }
  client_->push_gradient(minibatch, scale, measure, parts);
  whole_ = false;
}

ps::TableCounts SparseRows::counts() const {
  const ps::sparse::Traffic moved = client_->traffic();
  ps::TableCounts counts{.messages = moved.messages,
                         .pulled_ahead = pulled_ahead_,
                         .bytes_sent = moved.sent,
                         .bytes_received = moved.received,
                         .key_cache_saved = moved.keys_saved,
                         .fixed_point_saved = moved.values_saved,
                         .compress_saved = moved.packed_saved};
  for (const One& one : all_) {
    counts.rows_held_back += one.filters.left_out("significance");
    counts.rows_skipped += one.filters.left_out("random_skip");
    counts.rows_kept_zero += one.filters.left_out("kkt");
  }
  return counts;
}

double SparseRows::square_at(int64_t version) {
  const Client::Pulled pulled = client_->pull_at(version, 0, {}, {}, /*all_servers=*/true);
  return pulled.newest == version ? pulled.square : -1;
}

void SparseRows::fetch(int64_t version, optim::Optimizer& optimizer) {
  whole_ = false;
  for (size_t table = 0; table < all_.size(); ++table) {
    const auto arrays = arrays_of(all_[table], optimizer);
    for (size_t array = 0; array < arrays.size(); ++array)
      write(arrays[array].second, client_->fetch(static_cast<int>(table), static_cast<int64_t>(array),
                                                 Client::From::kSnapshot, version));
  }
}

}  // namespace yoke::parallel
