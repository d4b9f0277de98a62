#include "cli/collab_watch_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "cli/output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/collab/client.h"
#include "yoke/collab/etcd_meeting.h"
#include "yoke/collab/options.h"
#include "yoke/report/collab_page.h"

namespace yoke::cli {
namespace {

void show(const nlohmann::json& status, const CollabArguments& arguments) {
  if (!arguments.html.empty())
    write_file_atomically(arguments.html, report::collab_page(status, arguments.interval));
  const bool screen = terminal::is_terminal(STDOUT_FILENO);
  if (screen && !arguments.once) fmt::print("\x1b[H\x1b[2J");
  fmt::print("{}", report::collab_text(status, screen ? terminal::width(STDOUT_FILENO) : 0));
  std::fflush(stdout);
}

}  // namespace

int watch_collab(const CommandLine& line) try {
  const CollabArguments& arguments = line.collab;
  const double timeout = collab::CollabOptions().timeout;
  auto client = reach_meeting(collab::read_ticket(arguments.ticket), Deadline::after(timeout));
  for (bool first = true;; first = false) {
    nlohmann::json status;
    try {
      status = client->call({{"type", "watch"}}, Deadline::after(timeout));
    } catch (const CommError& error) {
      if (first) throw;
      log::info("{}", error.what());  // the run is over, and its meeting point gone
      return 0;
    }
    if (line.json) {
      if (!arguments.html.empty())
        write_file_atomically(arguments.html, report::collab_page(status, arguments.interval));
      status.erase("type");
      print_json(status);
      return 0;
    }
    show(status, arguments);
    if (arguments.once || status.at("ended").get<bool>()) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval));
  }
} catch (const nlohmann::json::exception& error) {
  throw CommError("collab watch: the meeting point's answer is incomplete: {}", json_problem(error));
}

}  // namespace yoke::cli
