"""Operations of one device, derived from components, layouts and schedules."""
