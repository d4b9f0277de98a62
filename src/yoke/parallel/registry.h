// The one table of how work can be spread: every value of every choice, and what excludes what.
//
// Three choices on a mesh: placement (which part of the model a rank holds), schedule (in which order it
// computes), sync (how replicas come to the same parameters). Refusals, documentation and the makers of
// strategies (maker.h) go by this table; a program adds rules of its own with add_sync().
#pragma once

#include <string>
#include <vector>

#include "yoke/parallel/choices.h"

namespace yoke::parallel {

struct Row {
  std::string choice;    // "placement", "schedule" or "sync"
  std::string name;      // "all_reduce"
  std::string setting;   // how a configuration asks for it
  std::string sentence;  // for people
  bool (*asked)(const Choices& choices) = nullptr;
  struct Exclusion {
    std::string name;  // of another row
    std::string why;
  };
  std::vector<Exclusion> excludes = {};
  bool lockstep = true;          // workers evaluate, save and finish together
  bool replicas_differ = false;  // between two rounds
  bool has_spares = false;       // ranks behind the workers that have no replica
};

// The whole table, the default of each choice first.
std::vector<Row> registry();

// The words that parallel.sync accepts.
std::vector<std::string> sync_words();

// A rule of the program's own: parallel.sync = `name` chooses it. Before a configuration is read. Throws
// ConfigError for a name that is taken.
void add_sync(const std::string& name, const std::string& sentence);

// What a configuration asks for. Throws ConfigError, with the reason from the table, for two that exclude
// each other.
struct Chosen {
  std::vector<Row> rows;
  bool has(const std::string& name) const;
  const Row& sync() const;
};
Chosen choose(const Choices& choices);

// Throws ConfigError for an optimizer (train.optimizer) that does not work with what is chosen: L-BFGS
// evaluates the loss several times a step and needs the whole gradient on every rank.
void check_optimizer(const Choices& choices, const std::string& optimizer);

// Throws ConfigError for a hook (ddp.hook) that needs the memory which sharding (parallel.zero) is to save.
void check_sharded_hook(const std::string& hook, int64_t zero);

}  // namespace yoke::parallel
