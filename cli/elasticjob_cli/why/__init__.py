"""Why a job does not train at full size: one table of causes, and one paragraph. Pure."""
