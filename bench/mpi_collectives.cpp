// MPI_Allreduce of fp32 in place, for bench/compare_collectives.py: prints "bytes seconds" for each size
// given.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int argument = 1; argument < argc; ++argument) {
    long bytes = std::atol(argv[argument]);
    std::vector<float> data(static_cast<size_t>(std::max(1L, bytes / 4)));
    int repeats = bytes <= 1 << 16 ? 1000 : (bytes <= 1 << 20 ? 50 : 3);
    std::vector<double> samples;
    for (int sample = 0; sample < 7; ++sample) {
      MPI_Barrier(MPI_COMM_WORLD);
      double begin = MPI_Wtime();
      for (int i = 0; i < repeats; ++i)
        MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      double seconds = (MPI_Wtime() - begin) / repeats;
      double slowest = 0;
      MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      samples.push_back(slowest);
    }
    std::sort(samples.begin(), samples.end());
    if (rank == 0) std::printf("%ld %.9f\n", bytes, samples[samples.size() / 2]);
  }
  MPI_Finalize();
}
