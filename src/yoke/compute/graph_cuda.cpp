#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

#include "yoke/compute/graph.h"

namespace yoke::compute {
namespace {

// Always the same stream: LibTorch keeps a cuBLAS workspace (32 MB on Hopper) per stream it has seen.
c10::cuda::CUDAStream side_stream() {
  thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  c10::DeviceIndex device = c10::cuda::current_device();
  auto found = streams.find(device);
  if (found == streams.end()) found = streams.emplace(device, c10::cuda::getStreamFromPool()).first;
  return found->second;
}

// A stream that waits for the current one, and that the current one then waits for.
template <class Function>
void on_side_stream(const Function& function) {
  c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream();
  c10::cuda::CUDAStream side = side_stream();
  current.synchronize();
  {
    c10::cuda::CUDAStreamGuard guard(side);
    function();
  }
  side.synchronize();
}

class CudaGraph : public DeviceGraph {
 public:
  explicit CudaGraph(const std::function<void()>& function) {
    // A graph has its own memory pool, and during capture the allocator cannot release its cache: without
    // this, a step needs its memory twice.
    c10::cuda::CUDACachingAllocator::emptyCache();
    on_side_stream([&] { capture(function); });
  }
  void replay() override { graph_.replay(); }

 private:
  void capture(const std::function<void()>& function) {
    graph_.capture_begin();
    try {
      function();
    } catch (...) {
      // An open capture would forbid other work on the device, such as finding out what uses its memory.
      try {
        graph_.capture_end();
      } catch (const std::exception&) {
      }
      throw;
    }
    graph_.capture_end();
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> DeviceGraph::record(const std::function<void()>& function) {
  return std::make_unique<CudaGraph>(function);
}

void DeviceGraph::warm_up(const std::function<void()>& function) {
  on_side_stream(function);
}

}  // namespace yoke::compute
