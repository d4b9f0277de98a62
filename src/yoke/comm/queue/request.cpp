#include "yoke/comm/queue/request.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <numeric>

#include "yoke/base/error.h"

namespace yoke::comm {
namespace {

using plan::Collective;

Operation make(Collective op, ConstBuffer input, Buffer output, int64_t count, DataType type) {
  if (count < 0)
    throw ConfigError("{}: {} elements. A count cannot be negative.", plan::to_string(op), count);
  Operation operation;
  operation.op = op;
  operation.input = input;
  operation.output = output;
  operation.descriptor.op = static_cast<uint8_t>(op);
  operation.descriptor.type = type;
  operation.descriptor.count = count;
  return operation;
}

void with_reduction(Operation& operation, ReduceOp op) {
  operation.reduce = op;
  operation.descriptor.reduce = op;
}

void with_root(Operation& operation, int root, int size) {
  if (root < 0 || root >= size)
    throw ConfigError("{}: root {} is not a rank of this group. Accepted: 0 to {}.",
                      plan::to_string(operation.op), root, size - 1);
  operation.root = root;
  operation.descriptor.root = root;
}

void same_type(Collective op, ConstBuffer input, const Buffer& output) {
  if (input.type != output.type)
    throw ConfigError("{}: the input is {} and the output {}. They must have the same type.",
                      plan::to_string(op), to_string(input.type), to_string(output.type));
}

void must_hold(Collective op, const char* which, int64_t has, int64_t wants, const char* rule) {
  if (has != wants)
    throw ConfigError("{}: the {} has {} elements and must have {} ({}).", plan::to_string(op), which, has,
                      wants, rule);
}

}  // namespace

Operation RequestChecker::all_reduce(Buffer data, ReduceOp op) const {
  Operation operation = make(Collective::kAllReduce, data, data, data.count, data.type);
  with_reduction(operation, op);
  return operation;
}

Operation RequestChecker::reduce(Buffer data, int root, ReduceOp op) const {
  Operation operation = make(Collective::kReduce, data, data, data.count, data.type);
  with_reduction(operation, op);
  with_root(operation, root, size);
  return operation;
}

Operation RequestChecker::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op) const {
  same_type(Collective::kReduceScatter, input, output);
  must_hold(Collective::kReduceScatter, "input", input.count, output.count * size, "output x ranks");
  Operation operation = make(Collective::kReduceScatter, input, output, input.count, input.type);
  with_reduction(operation, op);
  return operation;
}

Operation RequestChecker::all_gather(ConstBuffer input, Buffer output,
                                     std::span<const int64_t> counts) const {
  same_type(Collective::kAllGather, input, output);
  if (counts.empty()) {
    must_hold(Collective::kAllGather, "output", output.count, input.count * size, "input x ranks");
    return make(Collective::kAllGather, input, output, output.count, output.type);
  }
  must_hold(Collective::kAllGather, "list of counts", static_cast<int64_t>(counts.size()), size,
            "one a rank");
  must_hold(Collective::kAllGather, "input", input.count, counts[static_cast<size_t>(rank)],
            "this rank's count");
  must_hold(Collective::kAllGather, "output", output.count,
            std::accumulate(counts.begin(), counts.end(), int64_t{0}), "the sum of the counts");
  Operation operation = make(Collective::kAllGather, input, output, output.count, output.type);
  operation.parts.assign(counts.begin(), counts.end());
  operation.descriptor.parts = XXH3_64bits(counts.data(), counts.size_bytes());
  return operation;
}

Operation RequestChecker::all_to_all(ConstBuffer input, Buffer output) const {
  same_type(Collective::kAllToAll, input, output);
  must_hold(Collective::kAllToAll, "output", output.count, input.count, "as the input");
  if (input.count % size != 0)
    throw ConfigError("all_to_all: {} elements cannot be divided into {} equal parts.", input.count, size);
  if (input.data == output.data && input.count > 0)
    throw ConfigError("all_to_all: input and output are the same memory. It does not work in place.");
  return make(Collective::kAllToAll, input, output, input.count, input.type);
}

Operation RequestChecker::broadcast(Buffer data, int root) const {
  Operation operation = make(Collective::kBroadcast, data, data, data.count, data.type);
  with_root(operation, root, size);
  return operation;
}

Operation RequestChecker::gather(ConstBuffer input, Buffer output, int root) const {
  Operation operation = make(Collective::kGather, input, output, input.count, input.type);
  with_root(operation, root, size);
  if (rank == root) {
    same_type(Collective::kGather, input, output);
    must_hold(Collective::kGather, "root's output", output.count, input.count * size, "input x ranks");
  }
  return operation;
}

Operation RequestChecker::scatter(ConstBuffer input, Buffer output, int root) const {
  Operation operation = make(Collective::kScatter, input, output, output.count, output.type);
  with_root(operation, root, size);
  if (rank == root) {
    same_type(Collective::kScatter, input, output);
    must_hold(Collective::kScatter, "root's input", input.count, output.count * size, "output x ranks");
  }
  return operation;
}

Operation RequestChecker::barrier() const {
  return make(Collective::kBarrier, {}, {}, 0, DataType::kUint8);
}

Transfer RequestChecker::transfer(bool is_send, ConstBuffer data, int peer, int tag) const {
  const char* verb = is_send ? "send" : "receive";
  if (peer < 0 || peer >= size || peer == rank)
    throw ConfigError("{}: peer {} is not another rank of this group of {} (this is rank {}).", verb, peer,
                      size, rank);
  if (tag < 0 || tag > 65535) throw ConfigError("{}: tag {} is not between 0 and 65535.", verb, tag);
  if (data.count < 0) throw ConfigError("{}: {} elements. A count cannot be negative.", verb, data.count);
  Transfer transfer;
  transfer.is_send = is_send;
  transfer.peer = peer;
  transfer.tag = tag;
  transfer.data = static_cast<std::byte*>(const_cast<void*>(data.data));
  transfer.bytes = data.bytes();
  transfer.descriptor.op = is_send ? kSendOp : kReceiveOp;
  transfer.descriptor.type = data.type;
  transfer.descriptor.count = data.count;
  transfer.descriptor.root = tag;
  return transfer;
}

}  // namespace yoke::comm
