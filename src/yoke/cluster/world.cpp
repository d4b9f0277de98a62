#include "yoke/cluster/world.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/cluster/coordinator.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/cluster/link_check.h"
#include "yoke/cluster/session_wire.h"
#include "yoke/cluster/world_key.h"
#include "yoke/cluster/world_self.h"

namespace yoke::cluster {
namespace {

// Seconds that rank 0 waits for the others if it hosts the coordinator and has finished.
constexpr double kStayForOthers = 5;
constexpr double kStayAfterFailure = 0.5;
constexpr double kLinkCheck = 30;
constexpr double kRegroup = 90;  // seconds; the coordinator gives up earlier, and knows whom it waited for

bool on_one_machine(const Identity& identity, const net::Address& endpoint) {
  return endpoint.is_unix() || identity.local_world_size == identity.world_size;
}

net::Protection choose_protection(const JoinOptions& options) {
  if (options.insecure && options.encrypt)
    throw ConfigError("--insecure and --encrypt cannot be combined. Next: remove one of them");
  if (options.insecure) return net::Protection::kNone;
  if (options.encrypt) return net::Protection::kEncrypted;
  return inherited_protection().value_or(net::Protection::kIntegrity);
}

std::optional<net::Secret> given_secret(const JoinOptions& options) {
  // Removed from the environment in any case, so that child processes do not see it.
  std::optional<net::Secret> inherited = inherited_secret();
  std::string file = options.secret_file;
  if (file.empty()) file = environment_variable("YOKE_SECRET_FILE").value_or("");
  if (!file.empty()) return net::Secret::from_file(file);
  return inherited;
}

}  // namespace

struct World::Parts {
  net::JobTicket ticket;
  std::vector<Member> alone;
  std::unique_ptr<KeyGiver> key_giver;
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<net::Acceptor> acceptor;
  std::unique_ptr<Session> session;
  net::Address endpoint;  // of the coordinator
  bool local = true;      // one machine

  // In an elastic job the rank is known only when the epoch is.
  void accept_connections(bool elastic) {
    net::JobTicket own = ticket;
    if (elastic) own.rank = -1;
    acceptor = std::make_unique<net::Acceptor>(data_address(endpoint, local), own);
  }

  void choose_secret(const Identity& identity, const JoinOptions& options, bool one_machine,
                     Deadline deadline) {
    ticket.protection = choose_protection(options);
    if (ticket.protection == net::Protection::kNone) {
      if (identity.rank == 0)
        log::warn("--insecure: anyone who can reach {} can join this job, and read and change its data",
                  identity.endpoint);
      return;
    }
    if (std::optional<net::Secret> secret = given_secret(options)) {
      ticket.secret = *secret;
      return;
    }
    if (!one_machine)
      throw ConfigError(
          "this job spans machines and has no key. Next: the same file on every machine with --secret-file "
          "FILE (or YOKE_SECRET_FILE=FILE; make it with: head -c 32 /dev/urandom > FILE && chmod 600 FILE), "
          "or --insecure on a trusted network");
    net::Address where = key_address(identity.job_id, identity.generation);
    if (identity.hosts_coordinator)
      key_giver = std::make_unique<KeyGiver>(where, ticket.secret);
    else
      ticket.secret = fetch_key(where, deadline);
  }
};

World::World(const Identity& identity, const JoinOptions& options)
    : identity_(identity),
      options_(options),
      failure_(std::make_shared<Failure>()),
      parts_(std::make_unique<Parts>()) {
  arm_faults(identity.rank, identity.generation);
  // The launcher's value takes precedence: its coordinator waits as long.
  options_.join_timeout = inherited_join_timeout().value_or(options.join_timeout);
  Deadline deadline = Deadline::after(options_.join_timeout);
  parts_->ticket.job_id = identity.job_id;
  parts_->ticket.generation = static_cast<uint32_t>(identity.generation);
  parts_->ticket.rank = identity.rank;
  Member self = describe_self(identity);
  self.role = options.role;
  self.replaceable = options.replaceable;
  // A launcher's elastic job of one rank may grow.
  const bool may_grow = options.elastic && !identity.endpoint.empty() && !identity.hosts_coordinator;
  if (alone() && !may_grow) {
    parts_->alone = {self};
    return;
  }
  Whereabouts coordinator = whereabouts(identity.endpoint, identity.job_id);
  net::Address endpoint = coordinator.find(deadline);
  bool one_machine = on_one_machine(identity, endpoint);
  parts_->choose_secret(identity, options, one_machine, deadline);
  if (identity.hosts_coordinator) {
    CoordinatorOptions hosting;
    hosting.address = coordinator_address(endpoint, one_machine);
    hosting.world_size = identity.world_size;
    hosting.join_timeout = options_.join_timeout;
    hosting.expendable = options_.expendable;
    hosting.late_ranks = options_.late_ranks;
    if (options_.elastic) hosting.elastic_min = options_.elastic_min;
    parts_->coordinator = std::make_unique<Coordinator>(hosting, parts_->ticket);
    coordinator = endpoint = parts_->coordinator->address();
  }
  parts_->endpoint = endpoint;
  // Ranks of other machines may join at an address that they can reach.
  const bool may_span = options.elastic || options.late_ranks > 0;
  parts_->local = one_machine && (!may_span || endpoint.is_unix());
  parts_->accept_connections(options_.elastic);
  self.address = parts_->acceptor->address().text();
  parts_->session =
      std::make_unique<Session>(coordinator, parts_->ticket, self, identity.world_size, failure_, deadline,
                                JobTraits{options_.expendable, options_.late_ranks}, options_.prepare);
  const bool grows = !options_.expendable.empty() || options_.late_ranks > 0;
  if (!grows && !options_.elastic) parts_->key_giver.reset();  // no rank can join later
  if (!options_.elastic) return;
  if (!parts_->session->epoch().elastic)
    throw ConfigError(
        "elastic.enabled = true, but this job was not started as an elastic one. Start it with yoke run "
        "--elastic, or yoke train --nproc N --elastic.");
  take_place();
}

// Rank, size and neighbours as the epoch says.
void World::take_place() {
  const Epoch& epoch = parts_->session->epoch();
  const std::string& here = epoch.members[static_cast<size_t>(epoch.rank)].machine;
  identity_.rank = epoch.rank;
  identity_.world_size = static_cast<int>(epoch.members.size());
  identity_.local_rank = identity_.local_world_size = 0;
  for (const Member& member : epoch.members) {
    if (member.machine != here) continue;
    if (member.rank < epoch.rank) ++identity_.local_rank;
    ++identity_.local_world_size;
  }
  parts_->ticket.rank = epoch.rank;
  communicators_ = 0;
}

void World::regroup(const std::string& why) {
  YOKE_CHECK(elastic(), "regroup() in a job that is not elastic");
  if (failure_->set() && failure_->report().kind == "evicted") failure_->check("regroup");
  auto failure = std::make_shared<Failure>();
  parts_->accept_connections(/*elastic=*/true);  // at a new address: nothing of the old epoch arrives there
  parts_->session->regroup(parts_->acceptor->address().text(), why, failure,
                           Deadline::after(kRegroup + options_.join_timeout),
                           Deadline::after(options_.join_timeout));
  failure_ = failure;
  take_place();
}

void World::check_links() {
  if (!elastic() || alone() || !session().epoch().in_doubt) return;
  const Deadline deadline = Deadline::after(kLinkCheck);
  const nlohmann::json own = silent_ranks(members(), rank());
  const std::vector<std::string> all = session().exchange("links", own.dump(), deadline);
  std::vector<CutLink> cut;
  for (size_t caller = 0; caller < all.size(); ++caller)
    for (int silent :
         control::ranks({{"silent", parse_json(all[caller], fmt::format("links of rank {}", caller))}},
                        "silent", size()))
      cut.emplace_back(static_cast<int>(caller), silent);
  if (cut.empty()) {
    if (rank() == 0) log::info("epoch {}: all machines reach each other", epoch());
    return;
  }
  // The coordinator then tells all who leaves, which ends the epoch and this exchange.
  if (rank() == 0) session().report_cut_links(cut, deadline);
  session().exchange("links that are cut", "", deadline);
  throw CommError("{}", describe(members(), cut));
}

bool World::has_session() const {
  return parts_->session != nullptr;
}

int World::epoch() const {
  return has_session() ? parts_->session->epoch().number : 0;
}

World::~World() {
  parts_->session.reset();
  if (parts_->coordinator)
    parts_->coordinator->wait_until_empty(
        Deadline::after(failure_->set() ? kStayAfterFailure : kStayForOthers));
}

const std::vector<Member>& World::members() const {
  return has_session() ? parts_->session->members() : parts_->alone;
}

Session& World::session() {
  YOKE_CHECK(parts_->session != nullptr, "a world of one has no session");
  return *parts_->session;
}

void World::take_role(const std::string& role) {
  if (parts_->session) parts_->session->take_role(role);
}

net::Acceptor& World::acceptor() {
  YOKE_CHECK(parts_->acceptor != nullptr, "a world of one accepts no connections");
  return *parts_->acceptor;
}

const net::JobTicket& World::ticket() const {
  return parts_->ticket;
}

}  // namespace yoke::cluster
