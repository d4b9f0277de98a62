// Memory that ran out, as a user wants to hear it: what was asked, what there is, what takes it, what to do.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "yoke/base/error.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// Nothing is broken: a smaller step fits. Exit code 2.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& text) : Error(ExitCode::kUsage, text) {}
};

// Whether LibTorch, CUDA's libraries or the C++ library say that memory ran out.
bool is_out_of_memory(const std::exception& error);

// The bytes that could not be had, where the text names them.
std::optional<int64_t> requested_bytes(const std::string& text);

// One or two lines about `error`, which came up while `doing` ("in step 1"). `worker` may be unfinished, and
// is of no use afterwards: small steps are run on it to learn what a sample takes.
std::string describe_out_of_memory(const std::exception& error, const std::string& doing, Worker& worker,
                                   const WorkerOptions& options);

}  // namespace yoke::engine
