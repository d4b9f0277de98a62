#include "cli/ps_join_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "cli/output.h"
#include "cli/run_config.h"
#include "yoke/base/error.h"
#include "yoke/cluster/job_contact.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {
namespace {

constexpr double kFindSeconds = 5;

}  // namespace

// The job refuses a server that has another one than the run has saved.
std::string ps_config_file(const CommandLine& line) {
  const std::filesystem::path where = line.ps.job.where;
  const std::filesystem::path folder = std::filesystem::is_directory(where) ? where : where.parent_path();
  const std::string file = line.ps.config.empty() ? (folder / "config.toml").string() : line.ps.config;
  if (!std::filesystem::exists(file))
    throw ConfigError("{}: no such file, so the configuration of the run is unknown. Give it with --config.",
                      file);
  return file;
}

int join_as_ps_server(const CommandLine& line) {
  cluster::JobContact job = cluster::find_job(line.ps.job, Deadline::after(kFindSeconds));
  Configuration configuration;
  configuration.load(ps_config_file(line), {});
  const RunConfig& config = configuration.values;
  auto joined = [](int server) { fmt::print(stderr, "joined as parameter server {}\n", server); };
  const int server = parallel::serve_running_job(join_request(config), std::move(job), joined);
  if (line.json)
    print_json({{"server", server}});
  else
    fmt::print("parameter server {} has ended with the job\n", server);
  return 0;
}

}  // namespace yoke::cli
