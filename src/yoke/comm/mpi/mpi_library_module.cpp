#include <cstdlib>

#include "yoke/comm/modules/patience.h"
#include "yoke/comm/mpi/mpi_library.h"
#include "yoke/kernels/reduce.h"

namespace yoke::comm::mpi {
namespace {

Library* library = nullptr;

template <DataType type, ReduceOp op>
void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  kernels::accumulate(inout, in, static_cast<size_t>(*count), type, op);
}

template <DataType type, ReduceOp op>
MPI_Op own_op() {
  static MPI_Op made = [] {
    MPI_Op value = MPI_OP_NULL;
    check(MPI_Op_create(combine<type, op>, /*commute=*/0, &value), "MPI_Op_create");
    return value;
  }();
  return made;
}

template <DataType type>
MPI_Op own_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return own_op<type, ReduceOp::kMax>();
    case ReduceOp::kMin:
      return own_op<type, ReduceOp::kMin>();
    case ReduceOp::kProd:
      return own_op<type, ReduceOp::kProd>();
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      break;
  }
  return own_op<type, ReduceOp::kSum>();
}

MPI_Op builtin_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kProd:
      return MPI_PROD;
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      break;
  }
  return MPI_SUM;
}

}  // namespace

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  if (library != nullptr) library->give_up();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw CommError("{} failed: {}. Look at the output of mpirun for the rank that ended first.", call,
                  length > 0 ? text : "unknown error");
}

Library& Library::use(const MpiSetup& setup) {
  // Leaked on purpose: leave() runs at exit, after destructors of statics
  static auto* instance = new Library(setup);
  return *instance;
}

Library::Library(const MpiSetup& setup) : failure_(setup.failure), timeout_(setup.timeout) {
  int started = 0, level = 0;
  check(MPI_Initialized(&started), "MPI_Initialized");
  if (started)
    check(MPI_Query_thread(&level), "MPI_Query_thread");
  else
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
  ours_ = !started;
  if (level < MPI_THREAD_MULTIPLE)
    throw CommError(
        "backend mpi: this MPI provides thread level {}, but MPI_THREAD_MULTIPLE ({}) is required. Use an "
        "MPI built with threads, or call MPI_Init_thread with MPI_THREAD_MULTIPLE.",
        level, static_cast<int>(MPI_THREAD_MULTIPLE));
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  library = this;
  std::atexit([] { library->leave(); });
  std::at_quick_exit([] { library->leave(); });
}

// MPI_Finalize waits for all ranks without a timeout, so it is called only after all have reached a polled
// barrier. A failed rank does not; the launcher sees it exit without MPI_Finalize and ends the others.
void Library::leave() {
  if (broken_ || !ours_ || (failure_ && failure_->set())) return;
  finalized_ = true;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return;
  Deadline deadline = Deadline::after(timeout_);
  Patience patience;
  for (int done = 0; !done; patience.rest()) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (deadline.passed() || (failure_ && failure_->set())) return;
  }
  MPI_Finalize();
}

MPI_Datatype datatype_of(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return MPI_FLOAT;
    case DataType::kFloat64:
      return MPI_DOUBLE;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return MPI_UINT16_T;
    case DataType::kInt8:
      return MPI_INT8_T;
    case DataType::kUint8:
      return MPI_UINT8_T;
    case DataType::kInt16:
      return MPI_INT16_T;
    case DataType::kInt32:
      return MPI_INT32_T;
    case DataType::kInt64:
      break;
  }
  return MPI_INT64_T;
}

MPI_Op op_of(DataType type, ReduceOp op) {
  bool compares = op == ReduceOp::kMax || op == ReduceOp::kMin;
  switch (type) {
    case DataType::kFloat16:
      return own_op<DataType::kFloat16>(op);
    case DataType::kBFloat16:
      return own_op<DataType::kBFloat16>(op);
    case DataType::kFloat32:
      return compares ? own_op<DataType::kFloat32>(op) : builtin_op(op);
    case DataType::kFloat64:
      return compares ? own_op<DataType::kFloat64>(op) : builtin_op(op);
    default:
      return builtin_op(op);
  }
}

}  // namespace yoke::comm::mpi
