// Arguments of `yoke collab` and `yoke bench average`.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace yoke::cli {

struct CollabArguments {
  std::string file;         // configuration; join: empty takes that of the run
  std::string ticket;       // join, watch: text, or a file that contains it
  std::string ticket_file;  // start: where it is written; empty: it is logged
  std::string meeting = "127.0.0.1:0";
  std::string announce;  // start: address in the ticket; empty: that of `meeting`
  std::string run_id;    // empty: the model's name and a random number
  std::string init;      // start: weights
  bool client_only = false;
  bool continues = false;  // start: a run whose meeting point ended
  int64_t steps = 0;       // join: leave after so many; 0: at the end of the run
  std::string html;        // watch
  double interval = 1;
  bool once = false;
};

struct BenchAverageArguments {
  int64_t peers = 2;
  std::string bytes = "16MB";
  std::string links;  // bandwidth of each peer, for its share; empty: equal
  int64_t iterations = 5;
};

// Adds the options of the command, which fill `arguments`.
void add_start_options(CLI::App& command, CollabArguments& arguments);
void add_join_options(CLI::App& command, CollabArguments& arguments);
void add_watch_options(CLI::App& command, CollabArguments& arguments);
void add_options(CLI::App& command, BenchAverageArguments& arguments);

}  // namespace yoke::cli
