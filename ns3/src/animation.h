#pragma once

// An animation in the format of NetAnim 3.108: nodes and links, their state as colours, their counters each
// second. Single packets are left out: tracing them costs two thirds of the throughput.

#include "membership.h"
#include "options.h"

#include <fstream>

namespace peerloom
{

class Animation
{
  public:
    // Throws BadOption when the file can't be written.
    Animation(const Options& options, const Membership& membership);
    ~Animation();

    Animation(const Animation&) = delete;
    Animation& operator=(const Animation&) = delete;

    // Starts to write counters.
    void Start();
    // Shows the state of a station from now on.
    void Show(const Station& station);

  private:
    void WriteTopology(const Options& options);
    void Count();

    const Membership& m_membership;
    std::ofstream m_file;
};

} // namespace peerloom
