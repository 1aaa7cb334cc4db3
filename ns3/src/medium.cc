#include "medium.h"

#include "csma.h"
#include "wan.h"

namespace peerloom
{

std::unique_ptr<Medium>
MakeMedium(const Options& options, Membership& membership)
{
    if (options.medium == "csma")
    {
        return std::make_unique<Csma>(options, membership);
    }
    return std::make_unique<Wan>(options, membership);
}

} // namespace peerloom
