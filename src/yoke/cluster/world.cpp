#include "yoke/cluster/world.h"

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/coordinator.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/cluster/world_key.h"
#include "yoke/cluster/world_self.h"

namespace yoke::cluster {
namespace {

// Seconds rank 0 stays for the others when it hosts the coordinator and has nothing to do any more.
constexpr double kStayForOthers = 5;
constexpr double kStayAfterFailure = 0.5;

bool on_one_machine(const Identity& identity, const net::Address& endpoint) {
  return endpoint.is_unix() || identity.local_world_size == identity.world_size;
}

net::Protection choose_protection(const JoinOptions& options) {
  if (options.insecure && options.encrypt)
    throw ConfigError("--insecure and --encrypt contradict each other. Next: leave one of them out");
  if (options.insecure) return net::Protection::kNone;
  if (options.encrypt) return net::Protection::kEncrypted;
  return inherited_protection().value_or(net::Protection::kIntegrity);
}

std::optional<net::Secret> given_secret(const JoinOptions& options) {
  // Taken out of the environment in any case, so that nobody this rank starts sees it.
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

  void choose_secret(const Identity& identity, const JoinOptions& options, bool one_machine,
                     Deadline deadline) {
    ticket.protection = choose_protection(options);
    if (ticket.protection == net::Protection::kNone) {
      if (identity.rank == 0)
        log::warn("--insecure: anybody who reaches {} can join this job, read and change its data",
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
          "FILE (or "
          "YOKE_SECRET_FILE=FILE; make it with: head -c 32 /dev/urandom > FILE && chmod 600 FILE), or "
          "--insecure in a "
          "network you trust");
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
  // The launcher's word counts where it gave one: its coordinator waits as long.
  options_.join_timeout = inherited_join_timeout().value_or(options.join_timeout);
  Deadline deadline = Deadline::after(options_.join_timeout);
  parts_->ticket.job_id = identity.job_id;
  parts_->ticket.generation = static_cast<uint32_t>(identity.generation);
  parts_->ticket.rank = identity.rank;
  Member self = describe_self(identity);
  self.role = options_.role;
  if (alone()) {
    parts_->alone = {self};
    return;
  }
  net::Address endpoint = net::parse_address(identity.endpoint);
  bool one_machine = on_one_machine(identity, endpoint);
  parts_->choose_secret(identity, options, one_machine, deadline);
  if (identity.hosts_coordinator) {
    CoordinatorOptions hosting;
    hosting.address = coordinator_address(endpoint, one_machine);
    hosting.world_size = identity.world_size;
    hosting.join_timeout = options_.join_timeout;
    hosting.expendable = options_.expendable;
    parts_->coordinator = std::make_unique<Coordinator>(hosting, parts_->ticket);
    endpoint = parts_->coordinator->address();
  }
  parts_->acceptor = std::make_unique<net::Acceptor>(data_address(endpoint, one_machine), parts_->ticket);
  self.address = parts_->acceptor->address().text();
  parts_->session =
      std::make_unique<Session>(endpoint, parts_->ticket, self, identity.world_size, failure_, deadline);
  if (options_.expendable.empty()) parts_->key_giver.reset();  // nobody comes later
}

World::~World() {
  parts_->session.reset();
  if (parts_->coordinator)
    parts_->coordinator->wait_until_empty(
        Deadline::after(failure_->set() ? kStayAfterFailure : kStayForOthers));
}

const std::vector<Member>& World::members() const {
  return alone() ? parts_->alone : parts_->session->members();
}

Session& World::session() {
  YOKE_CHECK(parts_->session != nullptr, "a world of one has no session");
  return *parts_->session;
}

net::Acceptor& World::acceptor() {
  YOKE_CHECK(parts_->acceptor != nullptr, "a world of one accepts no connections");
  return *parts_->acceptor;
}

const net::JobTicket& World::ticket() const {
  return parts_->ticket;
}

}  // namespace yoke::cluster
