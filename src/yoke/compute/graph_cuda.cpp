#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "yoke/compute/graph.h"

namespace yoke::compute {
namespace {

// A stream that waits for the current one and that the current one then waits for.
template <class Function>
void on_side_stream(const Function& function) {
  c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream();
  c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
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
    on_side_stream([&] {
      graph_.capture_begin();
      function();
      graph_.capture_end();
    });
  }
  void replay() override { graph_.replay(); }

 private:
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
