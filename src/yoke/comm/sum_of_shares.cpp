#include "yoke/comm/sum_of_shares.h"

#include <cstring>

#include "yoke/kernels/reduce.h"

namespace yoke::comm {

bool overflows_as_sum(const Operation& operation) {
  return operation.reduce == ReduceOp::kMean && operation.descriptor.type == DataType::kFloat16;
}

Operation sum_of_shares(Operation operation, int size, std::vector<std::byte>& scratch) {
  operation.reduce = ReduceOp::kSum;
  void* data = operation.output.data;
  int64_t count = operation.output.count;
  if (operation.op == plan::Collective::kReduceScatter) {
    scratch.resize(operation.input.bytes());
    std::memcpy(scratch.data(), operation.input.data, scratch.size());
    operation.input.data = data = scratch.data();
    count = operation.input.count;
  }
  kernels::divide(data, static_cast<size_t>(count), operation.descriptor.type, size);
  return operation;
}

}  // namespace yoke::comm
