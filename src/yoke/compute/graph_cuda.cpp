#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <utility>

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

using Pool = decltype(std::declval<at::cuda::CUDAGraph&>().pool());

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(const std::function<void()>& function, const CudaGraph* earlier) {
    // A graph has its own memory pool, and during capture the allocator cannot release its cache: without
    // this, a step needs its memory twice.
    c10::cuda::CUDACachingAllocator::emptyCache();
    const Pool pool = earlier == nullptr ? Pool{0, 0} : earlier->pool_;
    on_side_stream([&] { capture(function, pool); });
    pool_ = graph_.pool();
  }
  void replay() override { graph_.replay(); }

 private:
  void capture(const std::function<void()>& function, Pool pool) {
    graph_.capture_begin(pool);
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
  Pool pool_;
};

}  // namespace

std::unique_ptr<DeviceGraph> DeviceGraph::record(const std::function<void()>& function,
                                                 const DeviceGraph* earlier) {
  return std::make_unique<CudaGraph>(function, static_cast<const CudaGraph*>(earlier));
}

void DeviceGraph::warm_up(const std::function<void()>& function) {
  on_side_stream(function);
}

}  // namespace yoke::compute
