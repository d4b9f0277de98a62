// The part of a worker that lies in sparse tables on the servers: parameters of which a minibatch uses few
// rows.
//
// The worker's own tensors have all rows, of which those of the current minibatch are current, and all after
// pull_all(). One table for each parameter, a key for each row. One thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "yoke/models/keyed.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/sync/servers/setup.h"
#include "yoke/ps/learner.h"
#include "yoke/ps/sparse/client.h"
#include "yoke/ps/sparse/row_filters.h"

namespace yoke::parallel {

class SparseRows {
 public:
  // Opens the tables. All must outlive it.
  SparseRows(std::vector<models::KeyedParameter> parameters, const PsSetup& setup, ps::Learner& learner,
             DataType type);

  std::vector<torch::Tensor> tensors() const;
  bool holds(const std::string& parameter) const;

  // The start of the run, by one worker: rows that are not zero, with their state from the optimizer. Throws
  // ConfigError if the servers' rule has other state.
  void assign(optim::Optimizer& optimizer, int64_t version);

  // Before the first minibatch of a step.
  void begin_step();
  // Brings the rows that a minibatch uses to this version or a later one. False: to a later one. Throws
  // ConfigError where the batch does not number rows.
  bool pull(int64_t version, const std::vector<torch::Tensor>& inputs);
  // Asks for the rows that a minibatch will use at this version, which the servers need not have yet. pull()
  // then waits for the answer instead of asking.
  void pull_ahead(int64_t version, const std::vector<torch::Tensor>& inputs);
  // All rows, at this version or a later one. Returns at once if nothing was computed since.
  void pull_all(int64_t version);

  // Takes the gradients of all rows that the step has used. False: they are not finite. Throws ConfigError if
  // another row has a gradient.
  bool gather();
  // Makes what gather() took zeros.
  void clear();
  void push(int64_t minibatch, double scale, bool measure);
  // Sum of squares of the tables' gradient in the update that made this version; -1: not measured.
  double square_at(int64_t version);
  // Rows and state of the snapshot, into the tensors and the optimizer's.
  void fetch(int64_t version, optim::Optimizer& optimizer);

  // Of this worker, so far.
  ps::TableCounts counts() const;

 private:
  struct One {
    models::KeyedParameter parameter;
    std::vector<ps::sparse::Key> keys;  // of this step
    torch::Tensor gradient;             // of these rows, on the host
    ps::sparse::RowFilters filters;
    std::shared_ptr<std::vector<ps::sparse::Key>> zeros{};  // rows of this step, for the KKT filter
  };
  void find_zeros(One& one) const;
  void gather_sparse(One& one, const torch::Tensor& gradient) const;
  void gather_dense(One& one, const torch::Tensor& gradient) const;
  std::vector<std::pair<std::string, torch::Tensor>> arrays_of(const One& one,
                                                               optim::Optimizer& optimizer) const;
  void write(const torch::Tensor& into, const ps::sparse::Client::Rows& rows) const;
  // Rows that were asked for, of all tables.
  struct Request {
    int64_t version = 0;
    std::vector<torch::Tensor> inputs;           // that name the rows
    std::vector<ps::sparse::Client::Rows> rows;  // by table
    std::vector<ps::sparse::Client::Pending> answers;
  };
  std::shared_ptr<Request> ask(int64_t version, const std::vector<torch::Tensor>& inputs);
  std::shared_ptr<Request> asked_before(int64_t version, const std::vector<torch::Tensor>& inputs);
  int64_t width_of(const One& one) const { return one.parameter.tensor.size(1); }

  c10::ScalarType type_;
  std::vector<One> all_;
  std::unique_ptr<ps::sparse::Client> client_;
  std::deque<std::shared_ptr<Request>> ahead_;  // by version
  int64_t pulled_ahead_ = 0;
  bool whole_ = false;  // all rows are current
};

}  // namespace yoke::parallel
