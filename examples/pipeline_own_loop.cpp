// Your own module and loop as a pipeline, one stage on each rank:
//   build/yoke run --nproc 2 build/example_pipeline_own_loop
#include <yoke/yoke.h>

#include <cstdio>

int main() {
  try {
    yoke::World world = yoke::join();  // rank and peers from the environment
    torch::manual_seed(1);
    // Any module made of blocks: here layers in a row, cut between any two of them.
    yoke::models::Model model = yoke::wrap(torch::nn::Sequential(torch::nn::Linear(16, 64), torch::nn::ReLU(),
                                                                 torch::nn::Linear(64, 64), torch::nn::ReLU(),
                                                                 torch::nn::Linear(64, 4)));

    const int64_t batch = 64;
    yoke::PipelineOptions options;
    options.schedule = "1f1b";
    options.microbatches = 8;
    options.batch_size = batch;
    options.optimizer.momentum = 0.9;
    yoke::Pipeline pipeline(model, {torch::randn({1, 16})}, world.comm(), options);

    torch::manual_seed(
        2);  // every rank has the same samples; the first stage reads them, the last the labels
    torch::Tensor samples = torch::randn({4096, 16});
    torch::Tensor labels = samples.narrow(1, 0, 4).argmax(1);
    double loss = 0;
    for (int64_t at = 0; at + batch <= samples.size(0); at += batch)
      loss = pipeline.step({samples.narrow(0, at, batch)}, labels.narrow(0, at, batch), /*lr=*/0.1);

    auto outputs = pipeline.forward({samples.narrow(0, 0, batch)});  // on the last stage
    if (!outputs.empty())
      std::printf("stage %d of %d: loss %.3f, %d of %d right\n", pipeline.stage(), pipeline.stages(), loss,
                  (outputs[0].argmax(1) == labels.narrow(0, 0, batch)).sum().item<int>(),
                  static_cast<int>(batch));
    return 0;
  } catch (const yoke::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
