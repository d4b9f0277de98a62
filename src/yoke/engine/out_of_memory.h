// Explains out-of-memory errors: what was requested, what is available, what uses it, what to do.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "yoke/base/error.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// Recoverable by a smaller step. Exit code 2.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& text) : Error(ExitCode::kUsage, text) {}
};

// Whether the error of LibTorch, CUDA or the C++ library means that memory ran out.
bool is_out_of_memory(const std::exception& error);

// The bytes that could not be allocated, if the text contains them.
std::optional<int64_t> requested_bytes(const std::string& text);

// One or two lines about `error`, which occurred while `doing` ("in step 1"). `worker` may be incomplete, and
// is unusable afterwards: small steps are run on it to measure the memory per sample.
std::string describe_out_of_memory(const std::exception& error, const std::string& doing, Worker& worker,
                                   const WorkerOptions& options);

}  // namespace yoke::engine
