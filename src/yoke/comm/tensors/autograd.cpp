#include "yoke/comm/tensors/autograd.h"

#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::autograd {
namespace {

using comm::Communicator;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;
using torch::autograd::variable_list;

// State that backward needs from forward.
struct Call {
  Communicator* comm;
  std::string name;
  int64_t number = 0;  // reduction, root, peer
  int64_t tag = 0;
  std::vector<int64_t> rows;

  void save(AutogradContext* context) const {
    context->saved_data["comm"] = reinterpret_cast<int64_t>(comm);
    context->saved_data["name"] = name;
    context->saved_data["number"] = number;
    context->saved_data["tag"] = tag;
    context->saved_data["rows"] = rows;
  }
  // For backward: `name` is that of the gradient.
  static Call load(AutogradContext* context, const char* operation) {
    Call call;
    call.comm = reinterpret_cast<Communicator*>(context->saved_data["comm"].toInt());
    call.name = context->saved_data["name"].toStringRef();
    if (at::GradMode::is_enabled())
      throw ConfigError(
          "{} '{}' on group '{}' has no second derivative. Call backward() without create_graph.", operation,
          call.name, call.comm->name());
    call.name = "grad of " + (call.name.empty() ? operation : call.name);
    call.number = context->saved_data["number"].toInt();
    call.tag = context->saved_data["tag"].toInt();
    call.rows = context->saved_data["rows"].toIntVector();
    return call;
  }

  ReduceOp op() const { return static_cast<ReduceOp>(number); }
  int peer() const { return static_cast<int>(number); }
  int gradient_tag() const { return static_cast<int>(tag) + kGradientTag; }
};

// A copy that may be written to. clone() alone may keep strides that differ from other ranks.
Tensor copy_of(const Tensor& tensor) {
  return tensor.clone(at::MemoryFormat::Contiguous);
}

Tensor summed(const Call& call, const Tensor& gradient, ReduceOp op = ReduceOp::kSum) {
  Tensor sum = copy_of(gradient);
  comm::all_reduce(*call.comm, sum, op, call.name);
  return sum;
}

// The product of the other ranks' inputs. Not result / input, which fails for zeros.
Tensor product_of_others(const Call& call, const Tensor& input) {
  Tensor all = comm::all_gather(*call.comm, input.unsqueeze(0), call.name);
  all[call.comm->rank()].fill_(1);
  return all.prod(0);
}

struct AllReduce : Function<AllReduce> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Call& call) {
    call.save(context);
    Tensor output = copy_of(input);
    comm::all_reduce(*call.comm, output, call.op(), call.name);
    bool linear = call.op() == ReduceOp::kSum || call.op() == ReduceOp::kMean;
    if (!linear) context->save_for_backward({input, output});
    return output;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    Call call = Call::load(context, "all_reduce");
    if (call.op() == ReduceOp::kSum || call.op() == ReduceOp::kMean)
      return {summed(call, gradients[0], call.op()), Tensor()};
    variable_list saved = context->get_saved_variables();
    Tensor sum = summed(call, gradients[0]);
    if (call.op() == ReduceOp::kProd) return {sum * product_of_others(call, saved[0]), Tensor()};
    Tensor held = saved[0].eq(saved[1]).to(sum.scalar_type());
    return {sum * held / summed(call, held), Tensor()};
  }
};

struct AllGather : Function<AllGather> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Call& call) {
    call.save(context);
    context->saved_data["sizes"] = input.sizes().vec();
    return comm::all_gather(*call.comm, input, call.name, call.rows);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    Call call = Call::load(context, "all_gather");
    std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    if (call.rows.empty())
      return {comm::reduce_scatter(*call.comm, gradients[0], ReduceOp::kSum, call.name).reshape(sizes),
              Tensor()};
    int64_t begin = std::accumulate(call.rows.begin(), call.rows.begin() + call.comm->rank(), int64_t{0});
    return {summed(call, gradients[0]).narrow(0, begin, sizes[0]), Tensor()};
  }
};

struct ReduceScatter : Function<ReduceScatter> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Call& call) {
    call.save(context);
    return comm::reduce_scatter(*call.comm, input, call.op(), call.name);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    Call call = Call::load(context, "reduce_scatter");
    Tensor all = comm::all_gather(*call.comm, gradients[0], call.name);
    if (call.op() == ReduceOp::kMean) all.div_(call.comm->size());
    return {all, Tensor()};
  }
};

struct AllToAll : Function<AllToAll> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Call& call) {
    call.save(context);
    return comm::all_to_all(*call.comm, input, call.name);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    Call call = Call::load(context, "all_to_all");
    return {comm::all_to_all(*call.comm, gradients[0], call.name), Tensor()};
  }
};

struct Broadcast : Function<Broadcast> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Call& call) {
    call.save(context);
    Tensor output = copy_of(input);
    comm::broadcast(*call.comm, output, call.peer(), call.name);
    return output;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    Call call = Call::load(context, "broadcast");
    Tensor sum = copy_of(gradients[0]);
    comm::reduce(*call.comm, sum, call.peer(), ReduceOp::kSum, call.name);
    if (call.comm->rank() != call.peer()) sum.zero_();
    return {sum, Tensor()};
  }
};

struct Send : Function<Send> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Call& call) {
    call.save(context);
    context->saved_data["sizes"] = input.sizes().vec();
    comm::send(*call.comm, input, call.peer(), static_cast<int>(call.tag), call.name);
    return torch::zeros({}, input.options().requires_grad(false));
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    Call call = Call::load(context, "send");
    Tensor gradient = torch::empty(context->saved_data["sizes"].toIntVector(), gradients[0].options());
    comm::receive(*call.comm, gradient, call.peer(), call.gradient_tag(), call.name);
    return {gradient, Tensor()};
  }
};

struct Receive : Function<Receive> {
  static Tensor forward(AutogradContext* context, const Tensor& tie, const Call& call,
                        const torch::TensorOptions& options) {
    call.save(context);
    context->saved_data["tie"] = tie.sizes().vec();
    Tensor output = torch::empty(call.rows, options.requires_grad(false));
    comm::receive(*call.comm, output, call.peer(), static_cast<int>(call.tag), call.name);
    return output;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    Call call = Call::load(context, "receive");
    comm::send(*call.comm, gradients[0], call.peer(), call.gradient_tag(), call.name);
    return {torch::zeros(context->saved_data["tie"].toIntVector(), gradients[0].options()), Tensor(),
            Tensor()};
  }
};

void check_tag(const char* operation, int tag) {
  if (tag >= 0 && tag < kGradientTag) return;
  throw ConfigError("{}: tag {} is not between 0 and {} (gradients use the tags above).", operation, tag,
                    kGradientTag - 1);
}

}  // namespace

Tensor all_reduce(Communicator& comm, const Tensor& tensor, ReduceOp op, const std::string& name) {
  return AllReduce::apply(tensor, Call{&comm, name, static_cast<int64_t>(op)});
}

Tensor all_gather(Communicator& comm, const Tensor& tensor, const std::string& name,
                  const std::vector<int64_t>& rows) {
  return AllGather::apply(tensor, Call{&comm, name, 0, 0, rows});
}

Tensor reduce_scatter(Communicator& comm, const Tensor& tensor, ReduceOp op, const std::string& name) {
  if (op != ReduceOp::kSum && op != ReduceOp::kMean)
    throw ConfigError("reduce_scatter '{}': {} has no gradient here. Accepted: sum, mean.", name,
                      to_string(op));
  return ReduceScatter::apply(tensor, Call{&comm, name, static_cast<int64_t>(op)});
}

Tensor all_to_all(Communicator& comm, const Tensor& tensor, const std::string& name) {
  return AllToAll::apply(tensor, Call{&comm, name});
}

Tensor broadcast(Communicator& comm, const Tensor& tensor, int root, const std::string& name) {
  return Broadcast::apply(tensor, Call{&comm, name, root});
}

Tensor send(Communicator& comm, const Tensor& tensor, int peer, int tag, const std::string& name) {
  check_tag("send", tag);
  return Send::apply(tensor, Call{&comm, name, peer, tag});
}

Tensor receive(Communicator& comm, torch::IntArrayRef sizes, const torch::TensorOptions& options, int peer,
               int tag, const std::string& name, const Tensor& tie) {
  check_tag("receive", tag);
  if (!c10::isFloatingType(c10::typeMetaToScalarType(options.dtype()))) {
    Tensor output = torch::empty(sizes, options.requires_grad(false));
    comm::receive(comm, output, peer, tag, name);
    return output;
  }
  // Without an input that requires grad there would be no node from which to send the gradient.
  Tensor input = tie.defined() ? tie : torch::zeros({}, options.requires_grad(true));
  return Receive::apply(input, Call{&comm, name, peer, tag, sizes.vec()}, options);
}

}  // namespace yoke::autograd
